package sockets

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/sock"
)

type conn = sock.Conn

// met wants both ends to know of one another, and bytes to come.
func met(w *world, a, b conn) {
	w.Helper()
	plain := func(p netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(p.Addr().WithZone(""), p.Port()) }
	if plain(a.Local()) != plain(b.Remote()) || plain(a.Remote()) != plain(b.Local()) {
		w.Errorf("from %v to %v, and from %v to %v", a.Local(), a.Remote(), b.Local(), b.Remote())
	}
	w.wrote(a, "hello")
	w.reads(b, "hello")
	w.wrote(b, "you too")
	w.reads(a, "you too")
	w.must(a.Close())
	w.ends(b, io.EOF)
	w.must(b.Close())
}

// nobody is a port at which nobody listens.
const nobody = 9

// dialRows are about how streams are opened.
var dialRows = []row{
	{name: "a stream over IPv4", run: func(w *world) {
		a, b := joined(w)
		if a.Local().Addr() != w.hosts[0].four || b.Local().Addr() != w.hosts[1].four || b.Local().Addr().Is4In6() {
			w.Errorf("from %v to %v", a.Local(), b.Local())
		}
		met(w, a, b)
	}},
	{name: "a stream over IPv6", run: func(w *world) {
		a, b := w.join(sock.From{}, w.hosts[1].six, "")
		if a.Local().Addr() != w.hosts[0].six || b.Local().Addr() != w.hosts[1].six {
			w.Errorf("from %v to %v", a.Local(), b.Local())
		}
		met(w, a, b)
	}},
	{name: "a stream between link-local addresses", run: func(w *world) {
		a, b := w.join(sock.From{}, w.hosts[1].local, "")
		if a.Local().Addr() != w.hosts[0].local || b.Local().Addr() != w.hosts[1].local || b.Remote().Addr() != w.hosts[0].local {
			w.Errorf("from %v to %v, which calls it %v", a.Local(), b.Local(), b.Remote())
		}
		met(w, a, b)
	}},
	{name: "from an address on an interface to a listener on an interface", run: func(w *world) {
		for _, h := range []struct{ from, to netip.Addr }{{w.hosts[0].four, w.hosts[1].four}, {w.hosts[0].six, w.hosts[1].six}, {w.hosts[0].local, w.hosts[1].local}} {
			a, b := w.join(sock.From{Addr: h.from, Netdev: "eth0"}, h.to, "eth0")
			if a.Local().Addr() != h.from {
				w.Errorf("from %v", a.Local())
			}
			met(w, a, b)
		}
	}},
	{name: "to an own address", run: func(w *world) {
		h := w.hosts[0]
		for _, to := range []netip.Addr{h.four, h.six, h.local, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.1.2.3"), netip.IPv6Loopback()} {
			l := h.listen(to, "")
			a := h.dial(sock.From{}, netip.AddrPortFrom(to, l.Addr().Port()))
			b, err := l.Accept()
			w.must(err, l.Close())
			if a.Local().Addr() != to && to != netip.MustParseAddr("127.1.2.3") {
				w.Errorf("to %v from %v", to, a.Local())
			}
			met(w, a, b)
		}
	}},
	{name: "to an own address on an interface", run: func(w *world) {
		h := w.hosts[0]
		for _, to := range []netip.Addr{h.four, h.six} {
			l := h.listen(to, "eth0")
			a := h.dial(sock.From{Addr: to, Netdev: "eth0"}, netip.AddrPortFrom(to, l.Addr().Port()))
			b, err := l.Accept()
			w.must(err, l.Close())
			met(w, a, b)
		}
	}},
	{name: "a closed port", run: func(w *world) {
		for _, to := range []netip.Addr{w.hosts[1].four, w.hosts[1].six, w.hosts[0].four, netip.MustParseAddr("127.0.0.1")} {
			w.hosts[0].fails(sock.From{}, netip.AddrPortFrom(to, nobody), unix.ECONNREFUSED)
		}
	}},
	{name: "from an address that is not the host's", run: func(w *world) {
		for _, from := range []netip.Addr{w.hosts[1].four, w.hosts[1].six} {
			_, err := w.hosts[0].Dial(context.Background(), sock.From{Addr: from}, netip.AddrPortFrom(from, nobody))
			w.is("dial", err, unix.EADDRNOTAVAIL)
			if err != nil && !strings.HasPrefix(err.Error(), "bind to "+from.String()) {
				w.Error(err)
			}
		}
	}},
	{name: "from an interface that is not there", run: func(w *world) {
		_, err := w.hosts[0].Dial(context.Background(), sock.From{Netdev: "eth9"}, netip.AddrPortFrom(w.hosts[1].four, nobody))
		w.is("dial", err, unix.ENODEV)
		if err != nil && !strings.HasPrefix(err.Error(), "bind to interface eth9: ") {
			w.Error(err)
		}
	}},
	{name: "no route", run: func(w *world) {
		for _, to := range []string{"192.0.2.1", "2001:db8::1"} {
			w.hosts[0].fails(sock.From{}, netip.AddrPortFrom(netip.MustParseAddr(to), nobody), unix.ENETUNREACH)
		}
		w.hosts[0].fails(sock.From{Netdev: "eth0"}, netip.MustParseAddrPort("[2001:db8::1]:9"), unix.ENETUNREACH)
	}},
	{name: "on an interface everything of IPv4 is on the link", run: func(w *world) {
		w.hosts[0].fails(sock.From{Netdev: "eth0"}, netip.MustParseAddrPort("192.0.2.1:9"), unix.EHOSTUNREACH)
		w.hosts[1].address(netip.MustParsePrefix("192.0.2.1/32"), true)
		w.hosts[0].fails(sock.From{Netdev: "eth0"}, netip.MustParseAddrPort("192.0.2.1:9"), unix.ECONNREFUSED)
	}},
	{name: "nobody has the address", run: func(w *world) {
		over := meanwhile(func() { w.hosts[0].fails(sock.From{}, netip.MustParseAddrPort("[fd09::99]:9"), unix.EHOSTUNREACH) })
		w.hosts[0].fails(sock.From{}, netip.MustParseAddrPort("10.9.0.99:9"), unix.EHOSTUNREACH)
		over()
	}},
	{name: "a link-local address without a zone", run: func(w *world) {
		w.hosts[0].fails(sock.From{}, netip.AddrPortFrom(w.hosts[1].local.WithZone(""), nobody), unix.EINVAL)
		w.hosts[0].fails(sock.From{Netdev: "eth0"}, netip.AddrPortFrom(w.hosts[1].local.WithZone(""), nobody), unix.ECONNREFUSED)
		w.hosts[0].fails(sock.From{Netdev: "lo"}, netip.AddrPortFrom(w.hosts[1].local, nobody), unix.EINVAL)
	}},
	{name: "an interface that is down", run: func(w *world) {
		w.hosts[0].up(false)
		for _, from := range []sock.From{{}, {Netdev: "eth0"}, {Addr: w.hosts[0].four, Netdev: "eth0"}} {
			w.hosts[0].fails(from, netip.AddrPortFrom(w.hosts[1].four, nobody), unix.ENETUNREACH)
		}
		w.hosts[0].fails(sock.From{}, netip.AddrPortFrom(w.hosts[1].six, nobody), unix.ENETUNREACH)
		w.hosts[0].fails(sock.From{Addr: w.hosts[0].six}, netip.AddrPortFrom(w.hosts[1].six, nobody), unix.EADDRNOTAVAIL)
		w.hosts[0].fails(sock.From{Addr: w.hosts[0].four}, netip.AddrPortFrom(w.hosts[0].four, nobody), unix.ECONNREFUSED) // still its own
	}},
	{name: "the other end's interface is down", run: func(w *world) {
		w.hosts[1].up(false)
		w.hosts[0].fails(sock.From{}, netip.AddrPortFrom(w.hosts[1].four, nobody), unix.EHOSTUNREACH)
	}},
	{name: "the context ends", run: func(w *world) {
		w.hosts[0].lose(true)
		cause := errors.New("the cause")
		ctx, cancel := context.WithCancelCause(context.Background())
		over := meanwhile(func() {
			_, err := w.hosts[0].Dial(ctx, sock.From{}, netip.AddrPortFrom(w.hosts[1].four, nobody))
			w.is("dial", err, cause)
		})
		w.pause()
		cancel(cause)
		over()
		late, cancel2 := context.WithTimeoutCause(context.Background(), 10*time.Millisecond, cause)
		defer cancel2()
		_, err := w.hosts[0].Dial(late, sock.From{}, netip.AddrPortFrom(w.hosts[1].four, nobody))
		w.is("dial", err, cause)
		_, err = w.hosts[0].Dial(ctx, sock.From{}, netip.AddrPortFrom(w.hosts[1].four, nobody))
		w.is("dial when it has ended", err, cause)
	}},
	{name: "a call that is lost is repeated", run: func(w *world) { w.dialOver(w.hosts[0]) }},
	{name: "an answer that is lost is repeated", run: func(w *world) { w.dialOver(w.hosts[1]) }},
	{name: "the interfaces and their addresses", run: func(w *world) {
		h := w.hosts[0]
		running := func() bool {
			all, err := h.Interfaces()
			w.must(err)
			if len(all) < 2 || all[0].Name != "lo" || all[0].Index != 1 || !all[0].Running {
				w.Fatalf("interfaces: %+v", all)
			}
			for _, i := range all {
				if i.Name == "eth0" && i.Index == h.index {
					return i.Running
				}
			}
			w.Fatalf("interfaces: %+v", all)
			return false
		}
		w.await("a carrier", running)
		have := func(want ...netip.Prefix) bool {
			got := h.Prefixes(h.index)
			if len(got) != len(want) {
				return false
			}
			for i := range want {
				if got[i].Bits() != want[i].Bits() || got[i].Addr() != want[i].Addr() {
					return false
				}
			}
			return true
		}
		local := netip.PrefixFrom(h.local.WithZone(""), 64)
		w.await("its addresses", func() bool { return have(h.prefixes()[0], h.prefixes()[1], local) })
		if got := h.Prefixes(99); len(got) > 0 {
			w.Errorf("no interface has %v", got)
		}
		if got := sock.InterfaceOf(h, h.six); got != "eth0" {
			w.Errorf("%v is the address of %q", h.six, got)
		}
		if got := sock.InterfaceOf(h, h.other.six); got != "" {
			w.Errorf("%v is the address of %q", h.other.six, got)
		}
		w.hosts[1].up(false)
		w.await("the end of the carrier", func() bool { return !running() })
		w.hosts[1].up(true)
		w.await("a carrier again", running)
		h.up(false)
		w.await("the end of being up", func() bool { return !running() && have(h.prefixes()[0]) })
	}},
}

// dialOver dials the second host from the first one while what a host sends is lost for a while.
func (w *world) dialOver(mute *host) {
	w.Helper()
	l := w.hosts[1].listen(w.hosts[1].four, "")
	mute.lose(true)
	over := meanwhile(func() {
		a, err := w.hosts[0].Dial(context.Background(), sock.From{}, netip.AddrPortFrom(w.hosts[1].four, l.Addr().Port()))
		if w.is("dial", err, nil); err == nil {
			w.must(a.Close())
		}
	})
	for range 10 {
		w.pause()
	}
	mute.lose(false)
	b, err := l.Accept()
	w.must(err)
	over()
	w.ends(b, io.EOF)
	w.must(b.Close(), l.Close())
}
