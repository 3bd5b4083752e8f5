package tcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/dataport"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/sock"
	"ncclmesh/transport/topology"
)

// reasonWait is how long this side waits, after a socket through relays broke, for a relay to report the reason
// over its session.
const reasonWait = 200 * time.Millisecond

// relayedCircuit is the circuit through relays that a socket uses.
type relayedCircuit struct {
	lost chan struct{} // closed when the other side has closed the circuit

	mu     sync.Mutex // a leaf
	why    error      // the reason; may be read once lost is closed
	closed bool       // this side needs no circuit any more
	opened *lane.OpenedCircuit
}

// drop closes the circuit if it has been opened, and lets store refuse it otherwise. t may be nil.
func (t *relayedCircuit) drop(why string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.closed = true
	asked := t.opened
	t.mu.Unlock()
	if asked != nil {
		asked.Drop(why)
	}
}

// store records an opened circuit. It returns false if drop has been called.
func (t *relayedCircuit) store(a *lane.OpenedCircuit) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opened = a
	return !t.closed
}

// dialThrough opens a circuit along the lane's route and dials through it.
func (k *socket) dialThrough(ctx context.Context, end dataport.End, remote handshake.Lane) (*sock.Stream, error) {
	circuits := k.port.opts.Circuits
	if circuits == nil {
		return nil, fmt.Errorf("%w: %v: %v%v: circuits are not supported here", fault.ErrInternal, k.lane.Conn, k.lane, k.lane.Route)
	}
	peer := k.lane.Conn.Session.Peer()
	ask := &handshake.CircuitOpen{
		Kind: handshake.LaneTCP, Route: k.lane.Route.Via, Half: handshake.Lane{Token: k.port.opts.Random.For(k.lane.Name()).Uint64("token of the first hop")},
		Final: handshake.Final{Process: peer.Process, Node: peer.Node, Port: k.lane.Peer.Index, Token: remote.Token},
	}
	t := &relayedCircuit{lost: make(chan struct{})}
	k.setCircuit(t)
	k.lane.Reached.Store(true) // relays answer over sessions; one that has not answered yet is only slow
	asked, err := circuits.OpenCircuit(ctx, k.port.Index(), ask, func(why error) {
		t.why = k.wrapCircuit(why)
		close(t.lost)
		k.lane.Conn.Owner.ReportFailure(k.lane, t.why)
	}, func(why error) {
		k.lane.Conn.Owner.Suspect(k.lane, fmt.Errorf("%w: %v: %v%v: %w", fault.ErrLane, k.lane.Conn, k.lane, k.lane.Route, why))
	})
	if err != nil {
		return nil, k.wrapCircuit(err)
	}
	if !t.store(asked) {
		asked.Drop("the lane has been closed")
		return nil, context.Canceled
	}
	stream, err := k.port.opts.Data.DialThrough(ctx, k.firstHop(asked, ask.Half.Token), k.firstRelay(asked), end)
	if err != nil {
		err = t.explain(ctx, k.port.opts.Clock, err)
		t.drop(err.Error())
		return nil, err
	}
	return stream, nil
}

// setCircuit stores the circuit, so that Close drops it.
func (k *socket) setCircuit(t *relayedCircuit) {
	k.streamMu.Lock()
	defer k.streamMu.Unlock()
	t.closed = k.closed
	k.circuit = t
}

// firstHop returns this side's end of the hop to the first relay.
func (k *socket) firstHop(a *lane.OpenedCircuit, token uint64) dataport.End {
	netdev := k.port.Now().Netdev
	return dataport.End{
		Name: a.Hop, Key: a.Key, Tokens: handshake.LaneTokens{Dialler: token, Listener: a.Half.Token},
		Addr: topology.OnLink(a.From.Addr, netdev), Netdev: netdev,
	}
}

// firstRelay returns the address on which the first relay listens.
func (k *socket) firstRelay(a *lane.OpenedCircuit) netip.AddrPort {
	return netip.AddrPortFrom(topology.OnLink(a.Half.Addr, k.port.Now().Netdev), a.Half.TCPPort)
}

// expectCircuit registers for the circuit's token, so that the last relay learns which address to dial.
func (k *socket) expectCircuit() error {
	circuits := k.port.opts.Circuits
	if circuits == nil {
		return fmt.Errorf("%w: %v: %v%v: circuits are not supported here", fault.ErrInternal, k.lane.Conn, k.lane, k.lane.Route)
	}
	return circuits.Expect(k.token, k.answerRelay, func(error) {})
}

// answerRelay returns the address on which this side listens, for the last relay of a circuit. It needs no
// close callback, because the socket itself reports its end.
func (k *socket) answerRelay(context.Context, *handshake.CircuitDeliver, func(string)) (*handshake.CircuitOpened, error) {
	h := handshake.Lane{Kind: handshake.LaneTCP, Port: k.port.Index()}
	k.Offer(&h)
	return &handshake.CircuitOpened{Half: handshake.Lane{Kind: h.Kind, Port: h.Port, Addr: h.Addr, TCPPort: h.TCPPort}}, nil
}

// explain returns the reason that a circuit broke while it was being dialled: the relays' reason if they report
// one within reasonWait, else err.
func (t *relayedCircuit) explain(ctx context.Context, clock clock.Clock, err error) error {
	wait := clock.NewTimer(reasonWait)
	defer wait.Stop()
	select {
	case <-t.lost:
		return t.why
	case <-ctx.Done():
	case <-wait.C:
	}
	return err
}

// wrapCircuit returns a relay's error with the name of the lane.
func (k *socket) wrapCircuit(err error) error {
	kind := fault.ErrLane
	if errors.Is(err, context.DeadlineExceeded) {
		kind = fault.ErrUnreachable
	}
	return fmt.Errorf("%w: %v: %v%v: the circuit is gone: %w", kind, k.lane.Conn, k.lane, k.lane.Route, err)
}
