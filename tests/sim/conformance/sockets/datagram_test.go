package sockets

import (
	"errors"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/sock"
)

var (
	group4 = netip.MustParseAddrPort("224.0.0.254:20045")
	group6 = netip.MustParseAddrPort("[ff12::4e4d]:20045")
)

// A talk is over one family.
type talk struct {
	w     *world
	group netip.AddrPort
	six   bool
}

// talks makes a row of what happens over each family.
func talks(name string, f func(t *talk)) row {
	return row{name: name, run: func(w *world) {
		f(&talk{w, group4, false})
		f(&talk{w, group6, true})
	}}
}

func (t *talk) hear(h *host) sock.Packets {
	t.w.Helper()
	p, err := h.Hear(h.on(), t.group)
	t.w.must(err)
	return p
}

// source is the address that a host sends from.
func (t *talk) source(h *host) netip.Addr {
	if t.six {
		return h.local.WithZone("")
	}
	return h.four
}

func (t *talk) ask(h *host) sock.Packets {
	t.w.Helper()
	source := h.four
	if t.six {
		source = netip.Addr{}
	}
	p, err := h.Ask(h.on(), source, sock.PortRange{})
	t.w.must(err)
	return p
}

// says sends text.
func (t *talk) says(p sock.Packets, h *host, text string, to netip.AddrPort) {
	t.w.Helper()
	t.w.must(p.Send([]byte(text), to, t.source(h)))
}

// hears receives text, and returns how it came.
func (t *talk) hears(p sock.Packets, text string) sock.Datagram {
	t.w.Helper()
	d := sock.Datagram{Room: make([]byte, 100)}
	t.w.must(p.Receive(&d))
	if string(d.Bytes) != text || d.Cut {
		t.w.Fatalf("heard %q, cut %v, want %q", d.Bytes, d.Cut, text)
	}
	return d
}

// datagramRows are about datagrams.
var datagramRows = []row{
	talks("a question to the group, and its answer", func(t *talk) {
		w, a, b := t.w, t.w.hosts[0], t.w.hosts[1]
		ear, mouth := t.hear(b), t.ask(a)
		t.says(mouth, a, "who is there?", t.group)
		d := t.hears(ear, "who is there?")
		if d.To != t.group.Addr() || d.From != netip.AddrPortFrom(t.source(a), mouth.Local().Port()) || d.Index != b.index || d.Hops != 255 {
			w.Errorf("to %v, from %v, by interface %d, with %d hops", d.To, d.From, d.Index, d.Hops)
		}
		t.says(ear, b, "me", d.From)
		d = t.hears(mouth, "me")
		if d.To != t.source(a) || d.From != netip.AddrPortFrom(t.source(b), t.group.Port()) || d.Index != a.index || d.Hops != 255 {
			w.Errorf("to %v, from %v, by interface %d, with %d hops", d.To, d.From, d.Index, d.Hops)
		}
		w.must(ear.Close(), mouth.Close())
	}),
	talks("all who listen hear a question, but for the host that asks", func(t *talk) {
		w, a, b := t.w, t.w.hosts[0], t.w.hosts[1]
		own, first, second, mouth, other := t.hear(a), t.hear(b), t.hear(b), t.ask(a), t.ask(b)
		t.says(mouth, a, "who is there?", t.group)
		t.hears(first, "who is there?")
		t.hears(second, "who is there?")
		t.says(other, b, "and there?", t.group)
		t.hears(own, "and there?") // and nothing before
		w.must(own.Close(), first.Close(), second.Close(), mouth.Close(), other.Close())
	}),
	talks("a socket of a group hears nothing that is for the host", func(t *talk) {
		w, a, b := t.w, t.w.hosts[0], t.w.hosts[1]
		ear, mouth := t.hear(b), t.ask(a)
		t.says(mouth, a, "for the host", netip.AddrPortFrom(t.source(b), t.group.Port()))
		t.says(mouth, a, "for the group", t.group)
		t.hears(ear, "for the group")
		w.must(ear.Close(), mouth.Close())
	}),
	talks("a socket that has left is not heard of", func(t *talk) {
		w, a, b := t.w, t.w.hosts[0], t.w.hosts[1]
		gone, mouth := t.hear(b), t.ask(a)
		w.must(gone.Close())
		t.says(mouth, a, "nobody hears", t.group)
		ear := t.hear(b)
		t.says(mouth, a, "somebody hears", t.group)
		d := sock.Datagram{Room: make([]byte, 100)}
		w.await("the second", func() bool {
			w.must(ear.Receive(&d))
			return string(d.Bytes) == "somebody hears"
		})
		w.must(ear.Close(), mouth.Close())
	}),
	talks("datagrams longer than the room are cut", func(t *talk) {
		w, a, b := t.w, t.w.hosts[0], t.w.hosts[1]
		ear, mouth := t.hear(b), t.ask(a)
		t.says(mouth, a, "0123456789", t.group)
		d := sock.Datagram{Room: make([]byte, 4)}
		w.must(ear.Receive(&d))
		if string(d.Bytes) != "0123" || !d.Cut {
			w.Errorf("heard %q, cut %v", d.Bytes, d.Cut)
		}
		t.says(mouth, a, "", t.group)
		w.must(ear.Receive(&d))
		if len(d.Bytes) != 0 || d.Cut {
			w.Errorf("heard %q, cut %v", d.Bytes, d.Cut)
		}
		w.must(ear.Close(), mouth.Close())
	}),
	talks("Close ends a Receive that waits", func(t *talk) {
		ear := t.hear(t.w.hosts[0])
		over := meanwhile(func() { t.w.is("receive", ear.Receive(&sock.Datagram{Room: make([]byte, 10)}), net.ErrClosed) })
		t.w.pause()
		t.w.must(ear.Close())
		over()
		t.w.is("receive", ear.Receive(&sock.Datagram{Room: make([]byte, 10)}), net.ErrClosed)
		t.w.is("send", ear.Send([]byte("x"), t.group, t.source(t.w.hosts[0])), net.ErrClosed)
		t.w.is("close", ear.Close(), net.ErrClosed)
	}),
	talks("on an interface that is not there", func(t *talk) {
		on := sock.Interface{Name: "eth9", Index: 99}
		_, err := t.w.hosts[0].Hear(on, t.group)
		t.w.is("hear", err, unix.ENODEV)
		_, err = t.w.hosts[0].Ask(on, t.source(t.w.hosts[0]), sock.PortRange{})
		t.w.is("ask", err, unix.ENODEV)
	}),
	talks("an interface that is down", func(t *talk) {
		w, h := t.w, t.w.hosts[0]
		mouth := t.ask(h)
		h.up(false)
		w.is("send", mouth.Send([]byte("x"), t.group, t.source(h)), unix.ENETUNREACH)
		h.up(true)
		w.must(mouth.Close())
	}),
	talks("what is lost is lost", func(t *talk) {
		w, a, b := t.w, t.w.hosts[0], t.w.hosts[1]
		ear, mouth := t.hear(b), t.ask(a)
		a.lose(true)
		t.says(mouth, a, "lost", netip.AddrPortFrom(t.source(b), mouth.Local().Port()))
		a.lose(false)
		t.says(mouth, a, "heard", t.group)
		t.hears(ear, "heard")
		w.must(ear.Close(), mouth.Close())
	}),
	talks("another program has the port for itself", func(t *talk) {
		w, h := t.w, t.w.hosts[0]
		one := sock.PortRange{First: t.group.Port(), Last: t.group.Port()}
		source := netip.IPv4Unspecified()
		if t.six {
			source = netip.Addr{}
		}
		other, err := h.Ask(h.on(), source, one)
		w.must(err)
		_, err = h.Hear(h.on(), t.group)
		w.is("hear", err, unix.EADDRINUSE)
		_, err = h.Ask(h.on(), source, one)
		usedUp(w, "ask", err, one)
		w.must(other.Close())
	}),
	{name: "sending from an address that is not the host's", run: func(w *world) {
		h := w.hosts[0]
		_, err := h.Ask(h.on(), h.other.four, sock.PortRange{})
		w.is("ask", err, unix.EADDRNOTAVAIL)
		mouth, err := h.Ask(h.on(), h.four, sock.PortRange{})
		w.must(err)
		err = mouth.Send([]byte("x"), group4, h.other.four)
		if !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EINVAL) || !strings.HasPrefix(err.Error(), "sendmsg: ") { // older kernels say EINVAL
			w.Errorf("send: %v", err)
		}
		w.must(mouth.Close())
	}},
	{name: "asking takes a port of a range", run: func(w *world) {
		h := w.hosts[0]
		var all []sock.Packets
		for range 3 {
			p, err := h.Ask(h.on(), h.four, few)
			w.must(err)
			if at := p.Local(); at.Addr() != h.four || at.Port() < few.First || at.Port() > few.Last {
				w.Errorf("at %v", at)
			}
			all = append(all, p)
		}
		_, err := h.Ask(h.on(), h.four, few)
		usedUp(w, "one too many", err, few)
		for _, p := range all {
			w.must(p.Close())
		}
	}},
	{name: "one own socket answers another", run: func(w *world) {
		h := w.hosts[0]
		a, err := h.Ask(h.on(), h.four, sock.PortRange{})
		w.must(err)
		b, err := h.Ask(h.on(), h.four, sock.PortRange{})
		w.must(err)
		t := &talk{w: w}
		t.says(a, h, "hello", b.Local())
		if d := t.hears(b, "hello"); d.From != a.Local() || d.Hops != 255 {
			w.Errorf("from %v with %d hops", d.From, d.Hops)
		}
		w.must(a.Close(), b.Close())
	}},
}
