package sockets

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ncclmesh/transport/limit"
	"ncclmesh/transport/sock"
)

// refused wants a listener to be refused.
func (h *host) refused(at netip.AddrPort, netdev string, want error) {
	h.w.Helper()
	l, err := h.Listen(at, netdev, sock.PortRange{})
	if err == nil {
		_ = l.Close()
	}
	h.w.is("listen at "+at.String(), err, want)
	if err != nil && !strings.HasPrefix(err.Error(), "listen at ") {
		h.w.Error(err)
	}
}

// listenRows are about listeners.
var listenRows = []row{
	{name: "a listener at all addresses of both families", run: func(w *world) {
		l := w.hosts[1].listen(netip.Addr{}, "")
		if !l.Addr().Addr().IsUnspecified() || l.Addr().Port() == 0 {
			w.Errorf("at %v", l.Addr())
		}
		for _, to := range []netip.Addr{w.hosts[1].four, w.hosts[1].six, w.hosts[1].local} {
			a := w.hosts[0].dial(sock.From{}, netip.AddrPortFrom(to, l.Addr().Port()))
			b, err := l.Accept()
			w.must(err)
			if b.Local().Addr() != to {
				w.Errorf("to %v, which is %v", to, b.Local())
			}
			met(w, a, b)
		}
		w.must(l.Close())
	}},
	{name: "a listener at one address hears nobody at another", run: func(w *world) {
		w.hosts[1].address(netip.MustParsePrefix("10.9.0.22/24"), true)
		l := w.hosts[1].listen(w.hosts[1].four, "")
		w.hosts[0].fails(sock.From{}, netip.AddrPortFrom(netip.MustParseAddr("10.9.0.22"), l.Addr().Port()), unix.ECONNREFUSED)
		w.hosts[0].fails(sock.From{}, netip.AddrPortFrom(w.hosts[1].six, l.Addr().Port()), unix.ECONNREFUSED)
		w.must(l.Close())
	}},
	{name: "a listener on one interface hears nobody on another", run: func(w *world) {
		l := w.hosts[1].listen(netip.Addr{}, "eth0")
		w.hosts[1].fails(sock.From{}, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), l.Addr().Port()), unix.ECONNREFUSED)
		for _, h := range w.hosts { // what the host itself sends to an address of the interface comes by it
			a := h.dial(sock.From{}, netip.AddrPortFrom(w.hosts[1].four, l.Addr().Port()))
			b, err := l.Accept()
			w.must(err)
			met(w, a, b)
		}
		w.must(l.Close())
	}},
	{name: "no listener at an address that is not the host's, nor on an interface that is not there", run: func(w *world) {
		w.hosts[0].refused(netip.AddrPortFrom(w.hosts[1].four, 0), "", unix.EADDRNOTAVAIL)
		w.hosts[0].refused(netip.AddrPortFrom(w.hosts[1].six, 0), "", unix.EADDRNOTAVAIL)
		w.hosts[0].refused(netip.AddrPortFrom(w.hosts[0].four, 0), "eth9", unix.ENODEV)
	}},
	{name: "a port has one listener", run: func(w *world) {
		h := w.hosts[0]
		l := h.listen(h.four, "")
		port := l.Addr().Port()
		h.refused(l.Addr(), "", unix.EADDRINUSE)
		h.refused(l.Addr(), "eth0", unix.EADDRINUSE)
		h.refused(netip.AddrPortFrom(netip.Addr{}, port), "", unix.EADDRINUSE)
		h.refused(netip.AddrPortFrom(netip.IPv4Unspecified(), port), "", unix.EADDRINUSE)
		for _, other := range []netip.Addr{h.six, netip.MustParseAddr("127.0.0.1")} {
			o, err := h.Listen(netip.AddrPortFrom(other, port), "", sock.PortRange{})
			if w.is("another address", err, nil); err == nil {
				w.must(o.Close())
			}
		}
		w.must(l.Close())
		l, err := h.Listen(l.Addr(), "", sock.PortRange{})
		w.must(err, l.Close())
	}},
	{name: "two interfaces have a listener each at one port", run: func(w *world) {
		h := w.hosts[1]
		l := h.listen(netip.Addr{}, "eth0")
		o, err := h.Listen(netip.AddrPortFrom(netip.Addr{}, l.Addr().Port()), "lo", sock.PortRange{})
		w.must(err)
		h.refused(netip.AddrPortFrom(netip.Addr{}, l.Addr().Port()), "", unix.EADDRINUSE)
		a := w.hosts[0].dial(sock.From{}, netip.AddrPortFrom(h.four, l.Addr().Port()))
		b, err := l.Accept()
		w.must(err)
		met(w, a, b)
		a = h.dial(sock.From{}, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), l.Addr().Port()))
		b, err = o.Accept()
		w.must(err)
		met(w, a, b)
		w.must(l.Close(), o.Close())
	}},
	{name: "a listener's port can be taken while streams go on, and after their end", run: func(w *world) {
		h := w.hosts[1]
		l := h.listen(h.four, "")
		a := w.hosts[0].dial(sock.From{}, l.Addr())
		b, err := l.Accept()
		w.must(err, l.Close())
		l, err = h.Listen(l.Addr(), "", sock.PortRange{})
		w.must(err, l.Close())
		w.must(b.Close()) // the side that keeps the port
		w.must(a.Close())
		l, err = h.Listen(l.Addr(), "", sock.PortRange{})
		w.must(err, l.Close())
	}},
	{name: "Close ends an Accept that waits", run: func(w *world) {
		l := w.hosts[0].listen(netip.Addr{}, "")
		over := meanwhile(func() {
			_, err := l.Accept()
			w.is("accept", err, net.ErrClosed)
		})
		w.pause()
		w.must(l.Close())
		over()
		_, err := l.Accept()
		w.is("accept once more", err, net.ErrClosed)
		if err := l.Close(); err == nil {
			w.Error("a listener can be closed twice")
		}
	}},
	{name: "a listener that is closed resets who waits", run: func(w *world) {
		l := w.hosts[1].listen(w.hosts[1].four, "")
		a := w.hosts[0].dial(sock.From{}, l.Addr())
		w.wrote(a, "hello")
		w.must(l.Close())
		w.ends(a, unix.ECONNRESET)
		w.must(a.Close())
	}},
	{name: "what was said before Accept is there", run: func(w *world) {
		l := w.hosts[1].listen(w.hosts[1].four, "")
		a := w.hosts[0].dial(sock.From{}, l.Addr())
		w.wrote(a, "hello")
		w.must(a.CloseWrite())
		other := w.hosts[0].dial(sock.From{}, l.Addr())
		for _, want := range []conn{a, other} {
			b, err := l.Accept()
			w.must(err)
			if b.Remote() != want.Local() {
				w.Errorf("%v is accepted, want %v", b.Remote(), want.Local())
			}
			if want == a {
				w.reads(b, "hello")
			}
			w.must(b.Close(), want.Close())
		}
		w.must(l.Close())
	}},
}

// few are some ports, below those that a kernel chooses from.
var few = sock.PortRange{First: 20000, Last: 20002}

// usedUp wants an error to say that the range is used up.
func usedUp(w *world, what string, err error, ports sock.PortRange) {
	w.Helper()
	if !limit.IsOwn(err) || !strings.Contains(err.Error(), "all ports of NCCL_MESH_PORTS="+ports.String()+" are in use on this machine; give it more ports") {
		w.Errorf("%s: %v", what, err)
	}
}

// portRows are about ranges of ports.
var portRows = []row{
	{name: "listeners take the ports of a range from its beginning", run: func(w *world) {
		h := w.hosts[0]
		var all []sock.Listener
		listen := func(at netip.Addr, want uint16) {
			w.Helper()
			l, err := h.Listen(netip.AddrPortFrom(at, 0), "", few)
			w.must(err)
			all = append(all, l)
			if l.Addr() != netip.AddrPortFrom(at, want) {
				w.Errorf("at %v, want port %d", l.Addr(), want)
			}
		}
		for port := few.First; port <= few.Last; port++ {
			listen(h.four, port)
		}
		listen(h.six, few.First)
		_, err := h.Listen(netip.AddrPortFrom(h.four, 0), "", few)
		usedUp(w, "one too many", err, few)
		w.must(all[1].Close())
		listen(h.four, few.First+1)
		_, err = h.Listen(netip.AddrPortFrom(h.other.four, 0), "", few)
		if !errors.Is(err, unix.EADDRNOTAVAIL) || limit.IsOwn(err) {
			w.Errorf("at a foreign address: %v", err)
		}
		for i, l := range all {
			if i != 1 {
				w.must(l.Close())
			}
		}
	}},
	{name: "streams have ports of a range for themselves, as long as there are any", run: func(w *world) {
		h := w.hosts[0]
		to := []sock.Listener{w.hosts[1].listen(w.hosts[1].four, ""), w.hosts[1].listen(w.hosts[1].four, "")}
		lanes := sock.From{Addr: h.four, Netdev: "eth0", Ports: few}
		var open []conn
		dial := func(from sock.From, to sock.Listener) uint16 {
			w.Helper()
			c := h.dial(from, to.Addr())
			open = append(open, c)
			return c.Local().Port()
		}
		want := []uint16{few.First, few.First + 1, few.Last}
		differ := func(what string, got ...uint16) {
			w.Helper()
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				w.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		differ("the first", dial(lanes, to[0]), dial(lanes, to[0]), dial(sock.From{Ports: few}, to[0]))
		_, err := h.Dial(w.Context(), sock.From{Netdev: "eth0", Ports: few}, to[1].Addr())
		usedUp(w, "a neighbour, which shares its port with nobody", err, few)
		differ("to another place", dial(lanes, to[1]), dial(lanes, to[1]), dial(lanes, to[1]))
		_, err = h.Dial(w.Context(), lanes, to[1].Addr())
		usedUp(w, "one too many", err, few)
		_, err = h.Dial(w.Context(), sock.From{Addr: h.other.four, Ports: few}, to[0].Addr())
		if !errors.Is(err, unix.EADDRNOTAVAIL) || limit.IsOwn(err) {
			w.Errorf("from a foreign address: %v", err)
		}
		for _, c := range open {
			w.must(c.Close())
		}
		w.must(to[0].Close(), to[1].Close())
	}},
	{name: "a stream does not take a listener's port", run: func(w *world) {
		h := w.hosts[0]
		own, err := h.Listen(netip.AddrPortFrom(netip.Addr{}, 0), "", few)
		w.must(err)
		to := w.hosts[1].listen(w.hosts[1].four, "")
		var open []conn
		for range 2 {
			c := h.dial(sock.From{Ports: few}, to.Addr())
			if c.Local().Port() == own.Addr().Port() {
				w.Errorf("from %v, where a listener is", c.Local())
			}
			open = append(open, c)
		}
		_, err = h.Dial(w.Context(), sock.From{Ports: few}, to.Addr())
		usedUp(w, "a third", err, few)
		for _, c := range open {
			w.must(c.Close())
		}
		w.must(own.Close(), to.Close())
	}},
	{name: "a port that was given back is not the next one", alone: true, run: func(w *world) {
		to := w.hosts[1].listen(w.hosts[1].four, "")
		var got []uint16
		for range 3 {
			a := w.hosts[0].dial(sock.From{Addr: w.hosts[0].four, Ports: few}, to.Addr())
			b, err := to.Accept()
			w.must(err)
			got = append(got, a.Local().Port())
			w.must(b.Reset()) // leaves no trace of it
			w.ends(a, unix.ECONNRESET)
			w.must(a.Close())
		}
		slices.Sort(got)
		if n := len(slices.Compact(got)); n != 3 {
			w.Errorf("three streams were dialled from %d ports", n)
		}
		w.must(to.Close())
	}},
	{name: "the port of a stream that was closed first is kept for a while", run: func(w *world) {
		h, one := w.hosts[0], sock.PortRange{First: 20000, Last: 20000}
		to := w.hosts[1].listen(w.hosts[1].four, "")
		a := h.dial(sock.From{Ports: one}, to.Addr())
		b, err := to.Accept()
		w.must(err, a.Close())
		w.ends(b, io.EOF)
		w.must(b.Close())
		w.await("the end", func() bool {
			_, err = h.Dial(w.Context(), sock.From{Ports: one}, to.Addr())
			return err != nil
		})
		usedUp(w, "again", err, one)
		a = h.dial(sock.From{}, to.Addr())
		w.must(a.Close(), to.Close())
	}},
}
