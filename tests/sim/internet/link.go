package internet

import (
	"net/netip"
	"slices"
	"time"

	"ncclmesh/tests/sim/bus"
)

// LinkConfig says how a link carries bytes, in each direction.
type LinkConfig struct {
	Rate    int64         // bytes a second; 0 is no limit
	Latency time.Duration // from end to end
	Jitter  time.Duration // so much later at most; what belongs to one stream stays in order
	Switch  bool          // the carrier of an interface does not hang on the others, also where there are but two
}

// A Link is a cable between two interfaces, or a switch with more.
type Link struct {
	net        *Internet
	config     LinkConfig
	interfaces []*Interface
	cut        bool
	cuts       int // so far: what was on its way then is lost
}

// Connect joins interfaces, which have to be free, by a cable, or by a switch where there are more than two.
func (n *Internet) Connect(c LinkConfig, interfaces ...*Interface) *Link {
	l := &Link{net: n, config: c, interfaces: interfaces}
	n.change(interfaces, func() {
		for _, i := range interfaces {
			if i.link != nil {
				panic("internet: " + i.String() + " is connected already")
			}
			i.link = l
			i.line.latency, i.line.jitter = c.Latency, c.Jitter
		}
	})
	return l
}

// Disconnect takes the link away from all its interfaces, so that they can be connected otherwise.
func (l *Link) Disconnect() {
	l.net.mu.Lock()
	all := l.interfaces
	l.net.mu.Unlock()
	l.net.change(all, func() {
		l.cuts++
		for _, i := range all {
			i.link = nil
		}
		l.interfaces = nil
	})
}

// Cut takes the carrier from all interfaces of the link, or gives it back. What is on its way is lost.
func (l *Link) Cut(cut bool) {
	l.net.mu.Lock()
	all := slices.Clone(l.interfaces)
	l.net.mu.Unlock()
	l.net.change(all, func() {
		if cut && !l.cut {
			l.cuts++
			l.net.count("link cut")
		}
		l.cut = cut
	})
}

// Loss is what becomes of packets that an interface sends: the shares that are lost. Each packet takes one draw.
type Loss struct {
	Streams   float64 // of segments
	Datagrams float64
	Neighbour float64 // of questions who has an address, and of answers
}

// All of what an interface sends is lost: the direction is dead, while the interface stays up.
var All = Loss{1, 1, 1}

// Lose makes packets that the interface sends vanish.
func (i *Interface) Lose(l Loss) {
	i.alter(func(line *line) { line.loss = l })
}

// LoseDatagrams makes the next n datagrams that the interface sends vanish.
func (i *Interface) LoseDatagrams(n int) {
	i.alter(func(line *line) { line.loseDatagrams = n })
}

// Duplicate is the share of datagrams that the interface sends twice.
func (i *Interface) Duplicate(share float64) {
	i.alter(func(line *line) { line.duplicate = share })
}

// Slow makes the interface send at a rate below its link's, in bytes a second; 0 ends that.
func (i *Interface) Slow(rate int64) {
	i.alter(func(line *line) { line.slow = rate })
}

// Delay makes what the interface sends arrive so much later.
func (i *Interface) Delay(by time.Duration) {
	i.alter(func(line *line) { line.delay = by })
}

// Route makes what the interface sends arrive as if it had passed so many routers: with a hop limit that is lower by them.
func (i *Interface) Route(routers int) {
	i.alter(func(line *line) { line.routers = routers })
}

func (i *Interface) alter(do func(*line)) {
	i.host.net.mu.Lock()
	defer i.host.net.mu.Unlock()
	do(i.line)
}

// A line is the direction of a link that leads away from an interface. One packet is on it at a time.
type line struct {
	from            *Interface
	source          *bus.Source // of what belongs to no socket
	latency, jitter time.Duration
	rate            int64 // of the loopback interface; that of others is their link's

	loss          Loss
	loseDatagrams int
	duplicate     float64
	slow          int64
	delay         time.Duration
	routers       int           // that what is sent passes
	busy          time.Duration // when it is free
}

// kind is what a packet carries.
type kind int

const (
	kindSegment kind = iota
	kindDatagram
	kindNeighbour
)

func (k kind) String() string { return [...]string{"segment", "datagram", "neighbour"}[k] }

// A packet is on its way from one interface to another.
type packet struct {
	kind     kind
	what     string // in the trace
	size     int    // bytes without headers
	src, dst netip.Addr
	hops     int
	source   *bus.Source                   // of the sender: for draws, and for events
	order    *time.Duration                // when what the sender sent before arrives; nil: packets need not stay in order
	land     func(at *Interface, hops int) // hops: the limit that is left
	failed   func()                        // nobody has the address; nil: nobody needs to know
}

// header is what each packet costs beside its bytes, and mtu how many it holds.
const (
	header = 66
	mtu    = 1434
)

// send puts a packet on the line, to an interface of the link, to all where that is nil, or to the host itself. at is the
// interface that it arrives at there.
// Preconditions: n.mu is locked.
func (l *line) send(p *packet, to, at *Interface) {
	n, link := l.from.host.net, l.from.link
	lost := p.source.Chance(l.share(p.kind))
	jitter := time.Duration(p.source.Float64() * float64(l.jitter))
	twice := p.kind == kindDatagram && p.source.Chance(l.duplicate)
	if p.kind == kindDatagram && l.loseDatagrams > 0 {
		l.loseDatagrams--
		lost = true
	}
	if !l.from.running() {
		n.count("no carrier for a " + p.kind.String())
		return
	}
	now := n.bus.Now()
	rate := l.rate
	if link != nil {
		rate = link.config.Rate
	}
	if l.slow > 0 {
		rate = l.slow
	}
	l.busy = max(now, l.busy)
	if rate > 0 {
		bytes := int64(p.size + (1+p.size/mtu)*header)
		l.busy += time.Duration(bytes * int64(time.Second) / rate)
	}
	arrival := l.busy + l.latency + l.delay + jitter
	if p.order != nil {
		arrival = max(arrival, *p.order)
		*p.order = arrival
	}
	if lost {
		n.count("lost " + p.kind.String())
		return
	}
	if link == nil {
		n.after(p.source, arrival-now, p.what, func() { l.arrive(p, at) })
		return
	}
	for range copies(twice) {
		cuts := link.cuts
		n.after(p.source, arrival-now, p.what, func() {
			for _, i := range slices.Clone(link.interfaces) {
				if link.cuts == cuts && i != l.from && (to == nil || i == to) {
					l.arrive(p, i)
				}
			}
		})
	}
}

// copies is how many of a packet arrive.
func copies(twice bool) int {
	if twice {
		return 2
	}
	return 1
}

// share is how much is lost of a kind.
func (l *line) share(k kind) float64 {
	switch k {
	case kindSegment:
		return l.loss.Streams
	case kindDatagram:
		return l.loss.Datagrams
	}
	return l.loss.Neighbour
}

// arrive hands a packet to the host that it has come to.
// Preconditions: n.mu is locked; an event of the bus runs.
func (l *line) arrive(p *packet, at *Interface) {
	n := l.from.host.net
	if !at.running() && at.host != l.from.host || at.host.off {
		n.count("no carrier for a " + p.kind.String())
		return
	}
	if n.holes[[2]*Host{l.from.host, at.host}] {
		n.count("black hole for a " + p.kind.String())
		return
	}
	p.land(at, max(p.hops-l.routers, 0))
}
