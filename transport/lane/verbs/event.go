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

// guardedEvent calls event. A panic fails the connection that the event belongs to.
func (p *Port) guardedEvent(e ibv.Event) {
	guard.Run(func() { p.event(e) }, func(g *guard.Panic) {
		fault.Panicked(p.opts.Log, "event of "+p.String(), g)
		if l := p.laneOf(e); l != nil {
			l.Conn.Owner.Fail(fmt.Errorf("%w: %v: %s: %w", fault.ErrInternal, l.Conn, e.Name, g))
		}
	})
}

// laneOf returns the lane of the queue pair that an event names, or nil.
func (p *Port) laneOf(e ibv.Event) *lane.Lane {
	p.queueMu.Lock()
	defer p.queueMu.Unlock()
	return p.queues[e.QPN]
}

// event handles an asynchronous event of the device. It takes no connection's mutex: a goroutine that destroys
// the event's queue pair holds that mutex and waits for event to return. A port that goes down breaks no lane
// by itself; connections stop using its lanes if they have others.
func (p *Port) event(e ibv.Event) {
	log := p.opts.Log
	switch e.Type {
	case ibv.IBV_EVENT_QP_FATAL, ibv.IBV_EVENT_QP_REQ_ERR, ibv.IBV_EVENT_QP_ACCESS_ERR:
		if l := p.laneOf(e); l != nil {
			reportFailure(l, e.Name)
		}
	case ibv.IBV_EVENT_PORT_ERR:
		if e.Port != p.Now().Num {
			return // the event is about another port
		}
		log.Warn("port went down; check the cable", "port", p.String(), "event", e.Name)
		type target struct {
			owner lane.Owner
			port  lane.Port // the circuit port if the lane is a circuit
		}
		notified := map[target]bool{}
		for _, l := range p.watched() {
			if b := (target{l.Conn.Owner, l.Port}); !notified[b] {
				notified[b] = true
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

// reportFailure reports to a connection that a lane's queue pair failed, by the name of the event.
func reportFailure(l *lane.Lane, event string) {
	l.Conn.Owner.ReportFailure(l, fmt.Errorf("%w: %v: %v: the queue pair failed: %s", fault.ErrLane, l.Conn, l, event))
}

// watched returns the lanes that have a queue pair on the port, in the order of the queue pairs' numbers.
func (p *Port) watched() (all []*lane.Lane) {
	p.queueMu.Lock()
	defer p.queueMu.Unlock()
	for _, qpn := range slices.Sorted(maps.Keys(p.queues)) {
		all = append(all, p.queues[qpn])
	}
	return all
}

// Watch makes the asynchronous events of a queue pair reach its lane, until Unwatch.
func (p *Port) Watch(qpn uint32, l *lane.Lane) {
	p.queueMu.Lock()
	p.queues[qpn] = l
	p.queueMu.Unlock()
}

// Unwatch undoes Watch.
func (p *Port) Unwatch(qpn uint32, l *lane.Lane) {
	p.queueMu.Lock()
	if p.queues[qpn] == l {
		delete(p.queues, qpn)
	}
	p.queueMu.Unlock()
}
