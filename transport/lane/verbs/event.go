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
		if q := p.queueOf(e); q != nil {
			q.Conn.Bundle.Fail(fmt.Errorf("%w: %v: %s: %w", fault.ErrInternal, q.Conn, e.Name, g))
		}
	})
}

// queueOf is the queue pair that an event is about, or nil.
func (p *Port) queueOf(e ibv.Event) *queuePair {
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
		if q := p.queueOf(e); q != nil {
			q.accuse(e.Name)
		}
	case ibv.IBV_EVENT_PORT_ERR:
		if e.Port != p.Now().Num {
			return // another's
		}
		log.Warn("port went down; check the cable", "port", p.String(), "event", e.Name)
		told := map[lane.Bundle]bool{}
		for _, q := range p.watched() {
			if b := q.Conn.Bundle; !told[b] {
				told[b] = true
				b.PortDown(p)
			}
		}
	case ibv.IBV_EVENT_DEVICE_FATAL:
		queues := p.watched()
		for _, q := range queues {
			q.accuse(e.Name)
		}
		log.Warn("device failed", "port", p.String(), "event", e.Name, "queue pairs", len(queues))
	default:
		log.Debug("device event", "port", p.String(), "event", e.Name)
	}
}

// accuse tells the connection of an event that says that the queue pair broke.
func (q *queuePair) accuse(event string) {
	q.Conn.Bundle.Evidence(q.Lane, fmt.Errorf("%w: %v: %v: the queue pair failed: %s", fault.ErrLane, q.Conn, q.Lane, event))
}

// watched are the queue pairs of the port.
func (p *Port) watched() []*queuePair {
	p.queueMu.Lock()
	defer p.queueMu.Unlock()
	return slices.Collect(maps.Values(p.queues))
}

// watch makes asynchronous events of a queue pair reach it.
func (p *Port) watch(q *queuePair) {
	p.queueMu.Lock()
	p.queues[q.qp.Num()] = q
	p.queueMu.Unlock()
}

func (p *Port) unwatch(q *queuePair) {
	p.queueMu.Lock()
	if p.queues[q.qp.Num()] == q {
		delete(p.queues, q.qp.Num())
	}
	p.queueMu.Unlock()
}
