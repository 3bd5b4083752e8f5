package internet

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/sim/bus"
)

// pair is the two ends of a stream, as one of them sees them; addresses have no zones.
type pair struct{ local, remote netip.AddrPort }

func bare(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().WithZone(""), a.Port())
}

// A segment is what one end of a stream says to the other. Sequence numbers count the bytes of a direction from 0, and the
// end of the stream as one more.
//
// Real ends tell an earlier stream of the same ports by sequence numbers that do not fit. Here a segment names the ends.
type segment struct {
	sender, receiver *end // nil: the sender does not know of one
	from, to         netip.AddrPort
	syn, ack, fin    bool
	rst, probe       bool
	seq              uint64
	data             []byte
	acked            uint64 // all before it has come
	limit            uint64 // so far the sender of the segment takes bytes
	have             []span // behind acked
}

// A span is a stretch of a stream.
type span struct{ from, to uint64 }

func (s *segment) String() string {
	switch {
	case s.rst:
		return "reset"
	case s.syn && s.ack:
		return "accepts"
	case s.syn:
		return "connects"
	case s.probe:
		return "probes"
	case s.fin:
		return fmt.Sprintf("%d bytes at %d, the last", len(s.data), s.seq)
	case len(s.data) > 0:
		return fmt.Sprintf("%d bytes at %d", len(s.data), s.seq)
	}
	return fmt.Sprintf("has %d", s.acked)
}

// length is how many numbers the segment takes.
func (s *segment) length() uint64 {
	n := uint64(len(s.data))
	if s.fin {
		n++
	}
	return n
}

// input takes a segment that has come to the host.
// Preconditions: n.mu is locked; an event of the bus runs.
func (h *Host) input(s *segment, at *Interface, hops int, local bool) {
	switch {
	case h.owner(s.to.Addr()) == nil:
		h.net.count("segment for an address that is gone")
		return
	case !local && s.from.Addr().Is4() && h.owner(s.from.Addr()) != nil:
		h.net.count("segment from an address of this host")
		return
	}
	if e := h.find(s, at); e != nil && !(s.syn && !s.ack && e.state == stateOver) {
		if hops < e.minHops {
			h.net.count("segment through a router")
			return
		}
		e.input(s)
		return
	}
	if s.syn && !s.ack {
		if l := h.listenerAt(s.to, at); l != nil {
			l.called(s, at)
			return
		}
	}
	if !s.rst {
		h.refuse(s, at)
	}
}

// find finds the end that a segment is for, as far as addresses and interfaces tell.
func (h *Host) find(s *segment, at *Interface) *end {
	for _, e := range h.pairs[pair{s.to, s.from}] {
		if e.on == nil || e.on == at {
			return e
		}
	}
	return nil
}

// refuse answers a segment that is for nobody.
func (h *Host) refuse(s *segment, at *Interface) {
	if !s.from.Addr().IsLinkLocalUnicast() {
		at = nil // any way will do
	}
	h.net.count("refused a segment")
	r := &segment{rst: true, sender: s.receiver, receiver: s.sender, from: s.to, to: s.from}
	_ = h.net.carry(r, h, passage{source: h.kernel, what: s.sender.name + " is refused", hops: 64, on: at}) // without a way back nobody hears it
}

// passage is how a segment is sent.
type passage struct {
	source *bus.Source
	what   string
	order  *time.Duration
	hops   int
	on     *Interface
	failed func()
}

// carry sends a segment from a host.
// Preconditions: n.mu is locked; an event of the bus runs.
func (n *Internet) carry(s *segment, from *Host, w passage) unix.Errno {
	p := &packet{kind: kindSegment, what: w.what, size: len(s.data), src: s.from.Addr(), dst: s.to.Addr(),
		hops: w.hops, source: w.source, order: w.order, failed: w.failed}
	p.land = func(at *Interface, hops int) { at.host.input(s, at, hops, at.host == from) }
	return from.send(p, w.on)
}
