package adapter

import (
	"time"

	"ncclmesh/ibv"
	"ncclmesh/tests/sim/bus"
)

// LinkConfig says how a link carries bytes, in each direction.
type LinkConfig struct {
	Rate    int64         // bytes a second; 0 is no limit
	Latency time.Duration // from end to end
	Jitter  time.Duration // so much later at most; packets of one queue pair stay in order
}

// A Link is a cable between two ports, or a switch with more.
type Link struct {
	fabric *Fabric
	config LinkConfig
	ports  []*Port
	cut    bool
}

// Connect joins ports, which have to be free, by a cable, or by a switch where there are more than two. Ports that come up
// raise events.
func (f *Fabric) Connect(c LinkConfig, ports ...*Port) *Link {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &Link{fabric: f, config: c, ports: ports}
	for _, p := range ports {
		if p.link != nil {
			panic("adapter: " + p.String() + " is connected already")
		}
		p.link = l
	}
	for _, p := range ports {
		p.tell(false)
	}
	return l
}

// Disconnect takes the link away from all its ports, so that they can be connected otherwise.
func (l *Link) Disconnect() {
	l.Cut(true)
	l.fabric.mu.Lock()
	defer l.fabric.mu.Unlock()
	for _, p := range l.ports {
		p.link = nil
	}
	l.ports = nil
}

// Cut takes the carrier from all ports of the link, or gives it back. What is on its way is lost. Ports that change raise
// events.
func (l *Link) Cut(cut bool) {
	l.fabric.mu.Lock()
	defer l.fabric.mu.Unlock()
	l.change(func() { l.cut = cut })
}

// change does what may change the state of ports, and raises their events.
// Preconditions: f.mu is locked.
func (l *Link) change(do func()) {
	var before []bool
	for _, p := range l.ports {
		before = append(before, p.active())
	}
	do()
	for i, p := range l.ports {
		p.tell(before[i])
	}
}

// tell raises the event of a port whose state has changed.
// Preconditions: f.mu is locked.
func (p *Port) tell(was bool) {
	switch is := p.active(); {
	case is && !was:
		p.raise(ibv.IBV_EVENT_PORT_ACTIVE)
	case was && !is:
		p.raise(ibv.IBV_EVENT_PORT_ERR)
	}
}

// Off switches one port off, or on again. The other end keeps its carrier.
func (p *Port) Off(off bool) {
	p.device.fabric.mu.Lock()
	defer p.device.fabric.mu.Unlock()
	was := p.active()
	p.off = off
	p.tell(was)
}

// SetGIDs replaces the port's table, as when an address of its interface changes.
func (p *Port) SetGIDs(gids []GID) {
	p.device.fabric.mu.Lock()
	defer p.device.fabric.mu.Unlock()
	p.config.GIDs = gids
	p.raise(ibv.IBV_EVENT_GID_CHANGE)
}

// SetMTU changes the port's active MTU. Queue pairs keep theirs.
func (p *Port) SetMTU(mtu uint32) {
	p.device.fabric.mu.Lock()
	defer p.device.fabric.mu.Unlock()
	p.config.MTU = mtu
}

// Loss is what becomes of packets that a port sends. Each burst of packets takes one draw.
type Loss struct {
	Data float64 // share that is lost of requests and of the data of READs
	Acks float64 // of acknowledgements and refusals
}

// Lose makes packets that the port sends vanish: with 1 and 1 the direction is dead, while the port stays up.
func (p *Port) Lose(l Loss) {
	p.device.fabric.mu.Lock()
	defer p.device.fabric.mu.Unlock()
	p.line.loss = l
}

// LoseAcks makes the next n acknowledgements that the port sends vanish. What they acknowledge has been done.
func (p *Port) LoseAcks(n int) {
	p.device.fabric.mu.Lock()
	defer p.device.fabric.mu.Unlock()
	p.line.loseAcks = n
}

// Delay makes what the port sends arrive so much later.
func (p *Port) Delay(by time.Duration) {
	p.device.fabric.mu.Lock()
	defer p.device.fabric.mu.Unlock()
	p.line.delay = by
}

// Slow makes the port send at a rate below its link's, in bytes a second; 0 ends that.
func (p *Port) Slow(rate int64) {
	p.device.fabric.mu.Lock()
	defer p.device.fabric.mu.Unlock()
	p.line.rate = rate
}

// A line is the direction of a link that leads away from a port. One burst is on it at a time.
type line struct {
	port     *Port
	source   *bus.Source
	loss     Loss
	loseAcks int           // so many of the next
	rate     int64         // 0: the link's
	delay    time.Duration // beside the link's latency
	busy     time.Duration // when it is free
}

// header is what a packet costs beside its bytes.
const header = 60

// send puts a packet on the line. It returns how long the sender is busy with it, and arrival the earliest time of the
// next packet of the same sender.
// Preconditions: f.mu is locked; an event of the bus runs.
func (l *line) send(p *packet, after *time.Duration) (busy time.Duration) {
	f, link := l.port.device.fabric, l.port.link
	now := f.bus.Now()
	loss := l.loss.Data
	if p.kind == kindAck || p.kind == kindNak {
		loss = l.loss.Acks
	}
	lost := l.source.Chance(loss)
	jitter := l.source.Float64()
	if p.kind == kindAck && l.loseAcks > 0 {
		l.loseAcks--
		lost = true
	}
	if p.to == l.port && !l.port.active() {
		f.count("loopback without a link", 1)
		return 0
	}
	if p.to == l.port { // inside the adapter
		f.count("loopback", 1)
		f.after(l.source, 0, p.what(), func() { l.arrive(p, nil) })
		return 0
	}
	if link == nil || p.to == nil {
		f.count("leads nowhere", 1)
		return 0
	}
	rate := link.config.Rate
	if l.rate > 0 {
		rate = l.rate
	}
	start := max(now, l.busy)
	l.busy = start
	if rate > 0 {
		l.busy += time.Duration(int64(len(p.data)+int(p.count)*header) * int64(time.Second) / rate)
	}
	at := max(l.busy+link.config.Latency+l.delay+time.Duration(jitter*float64(link.config.Jitter)), *after)
	*after = at
	if lost {
		f.count("lost "+p.kind.String(), 1)
		return l.busy - now
	}
	f.after(l.source, at-now, p.what(), func() { l.arrive(p, link) })
	return l.busy - now
}

// arrive hands a packet that has come over a link to its queue pair.
// Preconditions: f.mu is locked.
func (l *line) arrive(p *packet, over *Link) {
	f := l.port.device.fabric
	if over != nil && (l.port.link != over || !l.port.active() || !p.to.active() || p.to.link != over) {
		f.count("cut "+p.kind.String(), 1)
		return
	}
	q := f.qps[p.qpn]
	if q == nil || q.port() != p.to || !q.receives() || q.attr.DestQPNum != p.from || q.peer != l.port {
		f.count("unheard "+p.kind.String(), 1)
		return
	}
	if q.ece.inEffect != p.ece {
		f.count("not agreed "+p.kind.String(), 1)
		return
	}
	q.receive(p)
}
