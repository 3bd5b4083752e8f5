package overlay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/control"
	"ncclmesh/transport/discovery"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/routing"
)

// neighbourPoll is the time between two checks whether an expected neighbour has answered, before scaling.
const neighbourPoll = 25 * time.Millisecond

// neighbour returns the session with a process at the other end of a port's cable, and dials one if needed. If the
// process is not a known neighbour, because a port has changed or its job started later, it starts discovery and waits
// for the process: the node that requests the circuit knows it.
func (p *parts) neighbour(ctx context.Context, process handshake.ProcessID, port uint8) (*control.Session, error) {
	at := p.ports[port].Now()
	find := func() (discovery.Neighbour, bool) {
		all := p.discovery.Neighbours()
		i := slices.IndexFunc(all, func(n discovery.Neighbour) bool { return n.Process == process && n.Name == at.Netdev })
		if i < 0 {
			return discovery.Neighbour{}, false
		}
		return all[i], true
	}
	n, ok := find()
	if !ok {
		p.discovery.ExpectMore()
		p.discovery.Solicit()
	}
	look := p.cfg.Clock.NewTicker(p.cfg.Clock.Scaled(neighbourPoll))
	defer look.Stop()
	for over := p.discovery.Done(); !ok; {
		select {
		case <-look.C:
			n, ok = find()
		case <-over:
			if n, ok = find(); !ok {
				return nil, fmt.Errorf("%w: process %.8v does not answer at the other end of %s", fault.ErrUnreachable, process, at.Short())
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: process %.8v has not answered at the other end of %s: %w", fault.ErrUnreachable, process, at.Short(), context.Cause(ctx))
		}
	}
	return p.dial(ctx, n)
}

// dial returns a session with a neighbour: one that was dialled with the neighbour's handle, or else one over the cable.
func (p *parts) dial(ctx context.Context, n discovery.Neighbour) (*control.Session, error) {
	if s := p.dialled(n.Process); s != nil {
		return s, nil
	}
	s, err := p.sessions.DialNeighbour(ctx, n.Process, p.secret, n.Control, n.Name)
	if err != nil {
		p.discovery.Forget(n.Process)
	}
	return s, err
}

// dialled returns the session with a process that was dialled with its handle, or nil.
func (p *parts) dialled(process handshake.ProcessID) *control.Session {
	for _, s := range p.sessions.Sessions() {
		if s.Dialled() && !s.Neighbour() && s.Alive() && s.Peer().Process == process {
			return s
		}
	}
	return nil
}

// routingSessions gives the sessions with neighbours to the map.
type routingSessions struct{ *parts }

var _ routing.Sessions = routingSessions{}

// Known reports whether a session with a process was dialled with its handle.
func (r routingSessions) Known(process handshake.ProcessID) bool {
	return r.dialled(process) != nil
}

// Dial returns a session with a neighbour.
func (r routingSessions) Dial(ctx context.Context, n routing.Neighbour) (routing.Session, error) {
	s, err := r.dial(ctx, n)
	if err != nil {
		return nil, err // returning s would make a non-nil interface that holds a nil *Session
	}
	return s, nil
}
