package relay

import (
	"context"
	"errors"
	"net"
	"slices"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
)

// expectation is a circuit that is expected to end at this process.
type expectation struct {
	deliver lane.Deliver
	dropped func(error)
}

// incoming is a circuit that ends at this process.
type incoming struct {
	key
	expectation
	r      *Relay
	ctx    context.Context // of the set-up
	cancel context.CancelFunc

	// guarded by Relay.mu
	up   bool
	over bool
	err  error // the error if the other side ended it before it was up
}

// Expect registers a circuit that will end at this process; see [lane.Circuits].
func (r *Relay) Expect(token uint64, deliver lane.Deliver, dropped func(error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return net.ErrClosed
	}
	if _, ok := r.expected[token]; ok {
		return errors.New("a circuit with that token is already expected")
	}
	r.expected[token] = expectation{deliver, dropped}
	return nil
}

// maxCancelled is how many tokens of cancelled expectations are remembered.
const maxCancelled = 256

// Cancel removes an expectation.
func (r *Relay) Cancel(token uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.expected[token]; !ok {
		return
	}
	delete(r.expected, token)
	if len(r.cancelled) == maxCancelled {
		r.cancelled = slices.Delete(r.cancelled, 0, 1)
	}
	r.cancelled = append(r.cancelled, token)
}

// handleDeliver handles a CircuitDeliver message, which requests a circuit that ends here.
func (r *Relay) handleDeliver(s session, m *handshake.CircuitDeliver) {
	a := &incoming{key: key{s, m.Circuit}, r: r}
	a.ctx, a.cancel = r.cfg.Clock.WithTimeout(r.setUpCtx, r.cfg.Clock.Scaled(setUpWait))
	r.mu.Lock()
	x, ok := r.expected[m.Token]
	late := slices.Contains(r.cancelled, m.Token)
	free := r.inbound[a.key] == nil && !r.closed
	if ok && free {
		delete(r.expected, m.Token)
		a.expectation = x
		r.inbound[a.key] = a
	}
	r.mu.Unlock()
	switch {
	case late: // no fault: the lane was given up while its circuit was requested
		a.cancel()
		r.count(reasonLate)
		decline(s, m.Circuit, errors.New(reasonLate))
	case !ok:
		a.cancel()
		r.refuse(s, m.Circuit, reasonToken, nil)
	case !free:
		a.cancel()
		r.count(reasonTwice)
	case !r.spawn(func() { a.setUp(m) }, func(p *guard.Panic) { a.end(p, false) }):
		a.end(errClosed, false)
	}
}

// setUp connects this end of the circuit, and replies to the last relay.
func (a *incoming) setUp(m *handshake.CircuitDeliver) {
	defer a.cancel()
	answer, err := a.deliver(a.ctx, m, a.drop)
	if err != nil {
		a.end(a.r.cause(err), false)
		return
	}
	a.r.mu.Lock()
	over, lost := a.over, a.err
	a.up = !over
	a.r.mu.Unlock()
	switch {
	case lost != nil:
		a.dropped(lost)
	case !over:
		answer.Circuit = a.n
		if err := a.s.Send(answer); err != nil {
			a.end(err, true)
		}
	}
}

// drop ends the circuit from this end.
func (a *incoming) drop(why string) { a.end(errors.New(why), false) }

func (a *incoming) end(why error, fromPeer bool) {
	a.r.mu.Lock()
	if a.over {
		a.r.mu.Unlock()
		return
	}
	a.over = true
	if a.r.inbound[a.key] == a {
		delete(a.r.inbound, a.key)
	}
	wasUp := a.up
	if fromPeer && !wasUp {
		a.err = why
	}
	a.r.mu.Unlock()
	a.cancel()
	switch {
	case !fromPeer:
		decline(a.s, a.n, why)
	case wasUp:
		a.dropped(why)
	}
}
