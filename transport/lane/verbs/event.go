package verbs

import (
	"fmt"
	"maps"
	"slices"

	"ncclmesh/guard"
	"ncclmesh/ibv"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// guardedEvent is event. A panic in it fails the connection that the event is about.
func (p *Port) guardedEvent(e ibv.Event) {
	guard.Run(func() { p.event(e) }, func(g *guard.Panic) {
		fault.Panicked(p.opts.Log, "event of "+p.String(), g)
		if l := p.laneOf(e); l != nil {
			l.Conn.Owner.Fail(fmt.Errorf("%w: %v: %s: %w", fault.ErrInternal, l.Conn, e.Name, g))
		}
	})
}

// laneOf is the lane whose queue pair an event is about, or nil.
func (p *Port) laneOf(e ibv.Event) *lane.Lane {
	p.queueMu.Lock()
	defer p.queueMu.Unlock()
	return p.queues[e.QPN]
}

// event handles an asynchronous event of the device. Until it returns, the queue
// pair that the event speaks of cannot be destroyed, and who destroys it holds its
// connection's mutex: so it takes none of those. A port that goes down alone ends
// nothing: the lanes on it are left where there are others.
func (p *Port) event(e ibv.Event) {
	log := p.opts.Log
	switch e.Type {
	case ibv.IBV_EVENT_QP_FATAL, ibv.IBV_EVENT_QP_REQ_ERR, ibv.IBV_EVENT_QP_ACCESS_ERR:
		if l := p.laneOf(e); l != nil {
			reportFailure(l, e.Name)
		}
	case ibv.IBV_EVENT_PORT_ERR:
		if e.Port != p.Now().Num {
			return // another's
		}
		log.Warn("port went down; check the cable", "port", p.String(), "event", e.Name)
		type of struct {
			owner lane.Owner
			port  lane.Port // the same, to circuits
		}
		told := map[of]bool{}
		for _, l := range p.watched() {
			if b := (of{l.Conn.Owner, l.Port}); !told[b] {
				told[b] = true
				b.owner.PortDown(b.port)
			}
		}
	case ibv.IBV_EVENT_DEVICE_FATAL:
		lanes := p.watched()
		for _, l := range lanes {
			reportFailure(l, e.Name)
		}
		log.Warn("device failed", "port", p.String(), "event", e.Name, "queue pairs", len(lanes))
	default:
		log.Debug("device event", "port", p.String(), "event", e.Name)
	}
}

// accuse tells a connection of an event that says that a lane's queue pair broke.
func reportFailure(l *lane.Lane, event string) {
	l.Conn.Owner.ReportFailure(l, fmt.Errorf("%w: %v: %v: the queue pair failed: %s", fault.ErrLane, l.Conn, l, event))
}

// watched are the lanes with queue pairs of the port, by number of the queue pair.
func (p *Port) watched() (all []*lane.Lane) {
	p.queueMu.Lock()
	defer p.queueMu.Unlock()
	for _, qpn := range slices.Sorted(maps.Keys(p.queues)) {
		all = append(all, p.queues[qpn])
	}
	return all
}

// Watch makes asynchronous events of a queue pair reach its lane.
func (p *Port) Watch(qpn uint32, l *lane.Lane) {
	p.queueMu.Lock()
	p.queues[qpn] = l
	p.queueMu.Unlock()
}

// Unwatch ends that.
func (p *Port) Unwatch(qpn uint32, l *lane.Lane) {
	p.queueMu.Lock()
	if p.queues[qpn] == l {
		delete(p.queues, qpn)
	}
	p.queueMu.Unlock()
}
