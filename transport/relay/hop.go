package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/stage"
	"ncclmesh/transport/topology"
)

// hop is a hop that this process has requested, for a lane of its own or for a circuit that it relays.
type hop struct {
	key
	r       *Relay
	dropped func(error)
	stalled func(error)   // called repeatedly while a relay on the path is stalled; nil: the hop does not lead to a relay
	done    chan struct{} // closed once the hop is up, or over

	// guarded by Relay.mu
	life   stage.Stage[HopState]
	answer *handshake.CircuitOpened // the reply; nil before the hop is up
	why    error                    // reason why the hop is over
}

// newHop makes a hop with a new number.
func (r *Relay) newHop(s session, dropped, silent func(error)) (*hop, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, net.ErrClosed
	}
	h := &hop{r: r, key: key{s: s}, dropped: dropped, stalled: silent, done: make(chan struct{})}
	for h.n == 0 || r.requested[h.key] != nil {
		r.lastHop++
		h.n = r.lastHop
	}
	r.requested[h.key] = h
	return h, nil
}

func (r *Relay) hopOf(k key) *hop {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requested[k]
}

// name returns the name by which the hop's sockets authenticate.
func (k key) name() handshake.LaneName {
	return handshake.LaneName{Session: k.s.ID(), Conn: k.n, Lane: handshake.HopLane}
}

// request sends the message that requests the hop, and waits for the reply.
func (h *hop) request(ctx context.Context, m handshake.Message) (*handshake.CircuitOpened, error) {
	h.life.Enter(HopRequested)
	if err := h.s.Send(m); err != nil { // also for a session that ended before SessionEnded could see the hop
		h.endedByPeer(err)
		return nil, err
	}
	select {
	case <-h.done:
	case <-ctx.Done():
		err := fmt.Errorf("%s has not answered: %w", h.s.Name(), context.Cause(ctx))
		why := errors.New("it did not wait any longer")
		if h.r.setUpCtx.Err() != nil {
			why = errClosed
		}
		h.drop(reasonOf(h.s.LocalName(), why))
		return nil, err
	}
	h.r.mu.Lock()
	answer, why := h.answer, h.why
	h.r.mu.Unlock()
	if answer == nil {
		return nil, why
	}
	if h.stalled != nil {
		h.r.startLivenessChecks()
	}
	return answer, nil
}

// handleReply stores the reply. It returns false if no reply is expected.
func (h *hop) handleReply(m *handshake.CircuitOpened) bool {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	if h.life.At() != HopRequested {
		return false
	}
	h.life.Enter(HopUp)
	h.answer = m
	close(h.done)
	return true
}

// endedByPeer ends the hop after a CircuitClose of the other side, or after the session has ended.
func (h *hop) endedByPeer(why error) {
	if wasUp, _, first := h.finish(why); first && wasUp {
		h.dropped(why)
	}
}

// drop ends the hop from this side. It may be called again.
func (h *hop) drop(why string) {
	if _, sent, first := h.finish(errors.New(why)); first && sent {
		_ = h.s.Send(&handshake.CircuitClose{Circuit: h.n, Asker: true, Reason: why}) // the error means that the session has ended
	}
}

// finish ends the hop. first reports whether it was not over yet.
func (h *hop) finish(why error) (wasUp, sent, first bool) {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	before := h.life.At()
	if !h.life.Enter(HopOver) {
		return false, false, false
	}
	h.why = why
	delete(h.r.requested, h.key)
	if before != HopUp {
		close(h.done)
	}
	return before == HopUp, before >= HopRequested, true
}

// OpenCircuit requests a circuit; see [lane.Circuits].
func (r *Relay) OpenCircuit(ctx context.Context, port uint8, m *handshake.CircuitOpen, dropped, silent func(error)) (*lane.OpenedCircuit, error) {
	if len(m.Route) == 0 || int(port) >= len(r.cfg.Ports) {
		return nil, fmt.Errorf("no route for a circuit: port %d of %d, %d relays", port, len(r.cfg.Ports), len(m.Route))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.setUpCtx, cancel)()
	s, err := r.neighbour(ctx, m.Route[0].Process, port)
	if err != nil {
		return nil, err
	}
	ask := *m
	ask.Half.Kind, ask.Half.Port, ask.Half.PeerPort = ask.Kind, port, ask.Route[0].In
	var from topology.Address
	if !ask.Half.Addr.IsValid() {
		if from, _, err = r.hopAddrs(port, r.peerPort(s, ask.Half.PeerPort), netip.Addr{}); err != nil {
			return nil, err
		}
		ask.Half.Addr, ask.Half.GIDIndex = from.Addr, uint16(from.Index)
	}
	h, err := r.newHop(s, dropped, silent)
	if err != nil {
		return nil, err
	}
	ask.Circuit = h.n
	answer, err := h.request(ctx, &ask)
	if err != nil {
		return nil, err
	}
	return &lane.OpenedCircuit{CircuitOpened: answer, From: from, Hop: h.name(), Key: s.HopKey(), Drop: h.drop}, nil
}
