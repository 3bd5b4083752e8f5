package circuit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/verbs"
	"ncclmesh/transport/relay/hop"
	"ncclmesh/transport/topology"
	"ncclmesh/transport/turn"
)

const (
	pollBatch = 32                         // completions taken at once
	slotSize  = hop.HeaderSize + hop.Small // bytes of each receive that a receiver posts
	backSize  = hop.HeaderSize + lane.MaxSubs*grantBuffer
	backQueue = 2 * lane.Window // grants that can be queued, more than can be outstanding
)

// carrier is this side's end of a circuit.
type carrier struct {
	lane   *lane.Lane
	domain *domain
	port   *Port
	token  uint64 // the value of the peer's probe packet
	psn    uint32
	ece    handshake.ECE // options that the hop's queue pair offers or, once connected, has

	mem   *ibv.Memory // registered: frame headers and receive buffers
	mr    *ibv.MR
	wc    []ibv.WC
	cqMem *ibv.Memory
	cq    *ibv.CQ
	half  *hop.Endpoint

	mu           turn.Turn // held while the circuit is connected to the queue pair, and while the queue pair is destroyed
	closed       bool
	closeCircuit func(why string) // closes the circuit; nil while there is none
	joined       atomic.Bool      // the queue pair can send; the fields below are not used before

	out           hop.Window // window of the frames that this side writes
	next          uint64     // sequence of the next incoming frame
	probeReceived bool       // the peer's probe packet has arrived
	probeSeq      uint64     // sequence of this side's probe packet; 0 before it is sent
	broken        error      // the first error
	stopped       bool

	outgoing
	incoming
}

var (
	_ lane.Carrier = (*carrier)(nil)
	_ verbs.Copier = (*carrier)(nil)
)

// newCarrier creates this side's end of a circuit, with its queue pair in state INIT.
func newCarrier(d *domain, l *lane.Lane) (_ *carrier, err error) {
	c := &carrier{lane: l, domain: d, port: d.port, next: 1}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	c.psn, c.token = d.port.PSN(l.Name()), d.port.Token(l.Name())
	receives, slot, frames, frame := hop.TowardsReceiver, slotSize, backQueue, backSize
	if l.Conn.Sending {
		receives, slot, frames, frame = hop.TowardsSender, backSize, hop.Forth, hop.HeaderSize
	}
	if c.mem, err = ibv.Alloc(receives*slot + frames*frame + 128); err != nil {
		return nil, err
	}
	if c.cqMem, err = ibv.Alloc(pollBatch * 64); err != nil {
		return nil, err
	}
	c.wc = ibv.Carve[ibv.WC](c.cqMem, pollBatch)
	p := d.port
	// The adapter reads the receives itself, by the loopback. The circuit's queue pair allows the relay no READ.
	if c.mr, err = p.PD().RegMR(c.mem.Addr(), uintptr(c.mem.Len()), ibv.IBV_ACCESS_LOCAL_WRITE|ibv.IBV_ACCESS_REMOTE_READ); err != nil {
		return nil, err
	}
	if c.cq, err = p.Context().CreateCQ(hop.Completions(receives), nil); err != nil {
		return nil, err
	}
	if c.half, err = hop.NewEndpoint(p.PD(), c.cq, receives, uint32(l.Index)); err != nil {
		return nil, err
	}
	c.half.SetReceiveMemory(ibv.Carve[byte](c.mem, receives*slot), slot, c.mr.LKey())
	c.heads = ibv.Carve[byte](c.mem, frames*frame)
	if c.ece, err = p.Init(c.half.QP, 0); err != nil {
		return nil, err
	}
	if err := c.half.PostReceives(receives); err != nil {
		return nil, err
	}
	p.Watch(c.half.Num(), l)
	return c, nil
}

func (c *carrier) Offer(h *handshake.Lane) {
	c.port.Half(h, c.lane.From, c.half.Num(), c.psn)
	h.Token = c.token
}

// Connect requests the circuit from the relays at the sender, and registers for it at the receiver.
func (c *carrier) Connect(ctx context.Context, remote handshake.Lane, _ int) error {
	circuits := c.port.opts.Circuits
	if !c.lane.Conn.Sending {
		return circuits.Expect(c.token, c.accept, c.circuitClosed)
	}
	if c.lane.Route == nil || len(c.lane.Route.Via) == 0 {
		return fmt.Errorf("%w: %v: %v: a circuit without a route", fault.ErrInternal, c.lane.Conn, c.lane)
	}
	peer := c.lane.Conn.Session.Peer()
	ask := &handshake.CircuitOpen{
		Kind: handshake.LaneVerbs, Route: c.lane.Route.Via,
		Final: handshake.Final{Process: peer.Process, Node: peer.Node, Port: c.lane.Peer.Index, Token: remote.Token},
	}
	c.port.Half(&ask.Half, topology.Address{}, c.half.Num(), c.psn)
	ask.Half.Kind, ask.Half.ECE = handshake.LaneVerbs, c.ece
	c.lane.Reached.Store(true) // relays answer over sessions; one that has not answered yet is only slow
	a, err := circuits.OpenCircuit(ctx, c.port.Index(), ask, c.circuitClosed, c.circuitStalled)
	if err != nil {
		return err
	}
	if err := c.circuitOpened(a); err != nil {
		a.Drop(err.Error())
		return err
	}
	return nil
}

// circuitOpened connects the sender's queue pair to the first relay's.
func (c *carrier) circuitOpened(a *lane.OpenedCircuit) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	room := a.Write.Size
	if a.Room > 0 {
		room = min(room, a.Room)
	}
	if c.closed {
		return errors.New("given up")
	}
	if room < hop.MinRing || room > hop.MaxRing {
		return fmt.Errorf("%w: %v: %v: the relays offer a ring of %d bytes; %d to %d are allowed", fault.ErrLane, c.lane.Conn, c.lane, room, hop.MinRing, hop.MaxRing)
	}
	c.maxPayload = hop.MostPayload(room)
	c.out = hop.NewWindow(a.Write, hop.Forth, hop.ForthUndelivered)
	from := a.From
	if from == (topology.Address{}) {
		from = c.lane.From
	}
	var err error
	if c.ece, err = c.port.Join(c.half.QP, verbs.Link{From: from, Remote: a.Half, PSN: c.psn, ECE: c.ece, Probe: c.lane.Conn.Probe, Begun: 1, Answered: 1}); err != nil {
		return err
	}
	c.closeCircuit = a.Drop
	c.joined.Store(true)
	return nil
}

// accept connects the receiver's queue pair to the last relay's and returns the answer for the relay.
func (c *carrier) accept(_ context.Context, m *handshake.CircuitDeliver, drop func(string)) (*handshake.CircuitOpened, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.closeCircuit != nil {
		return nil, errors.New("the lane has been closed")
	}
	if m.Read.Size < hop.MinRing || m.Read.Size > hop.MaxRing || m.Write.Size < hop.BackRing {
		return nil, fmt.Errorf("%w: %v: %v: the last relay offers rings of %d and %d bytes", fault.ErrLane, c.lane.Conn, c.lane, m.Read.Size, m.Write.Size)
	}
	from := c.port.answer(m.Half, c.lane.From)
	c.ring = m.Read
	c.out = hop.NewWindow(m.Write, hop.Back, hop.BackUndelivered)
	reads, _ := c.port.Reads(min(hop.Reads, max(1, int(m.Half.Token))))
	c.maxReads = int(reads)
	var err error
	if c.ece, err = c.port.Join(c.half.QP, verbs.Link{From: from, Remote: m.Half, PSN: c.psn, ECE: c.ece, Probe: c.lane.Conn.Probe, Begun: reads, Answered: 1}); err != nil {
		return nil, err
	}
	answer := &handshake.CircuitOpened{Room: m.Read.Size}
	c.port.Half(&answer.Half, from, c.half.Num(), c.psn)
	answer.Half.Kind, answer.Half.ECE = handshake.LaneVerbs, c.ece
	c.closeCircuit = drop
	c.joined.Store(true)
	return answer, nil
}

// circuitClosed reports to the connection that the other side has closed the circuit.
func (c *carrier) circuitClosed(why error) {
	c.lane.Conn.Owner.ReportFailure(c.lane, c.wrap(why))
}

// circuitStalled reports to the connection that a relay gives no sign of life.
func (c *carrier) circuitStalled(why error) {
	c.lane.Conn.Owner.Suspect(c.lane, c.wrap(why))
}

// LocalError returns nil, because Connect returns local resource errors.
func (c *carrier) LocalError() error { return nil }

// Number returns the queue pair number.
func (c *carrier) Number() int { return int(c.half.Num()) }

// Terms returns the relays of the circuit.
func (c *carrier) Terms() string { return "relayed" + c.lane.Route.String() }

// Remark returns "": circuits need no warning.
func (c *carrier) Remark() string { return "" }

// PostProbe sends a frame with the peer's token, which validates the path.
func (c *carrier) PostProbe() error {
	if !c.joined.Load() {
		return fmt.Errorf("%w: %v: %v: the circuit is not up", fault.ErrLane, c.lane.Conn, c.lane)
	}
	h := hop.Header{Kind: hop.Probe, Socket: [2]uint64{c.lane.Remote.Token}}
	c.probeSeq = c.out.Sent + 1
	if c.lane.Conn.Sending {
		_, err := c.frame(&h, hop.Piece{})
		return err
	}
	c.queueBack(&h, nil)
	return c.flush()
}

func (c *carrier) Probed() (sent, came bool, err error) {
	c.poll()
	if c.broken != nil {
		return false, false, c.broken
	}
	return c.probeSeq > 0 && c.out.Arrived() >= c.probeSeq, c.probeReceived, nil
}

// Delivering reports whether parts are outstanding, because their credits may still arrive.
func (c *carrier) Delivering(bool) bool { return c.lane.InService() && c.undelivered() }

// Stalled returns false, because the peer's process may be slow, and package relay detects relays that do not
// answer.
func (c *carrier) Stalled() bool { return false }

// Unsent returns 0, because no kernel buffers the data.
func (c *carrier) Unsent() int { return 0 }

// Stop ends all transfers. It waits for accept or circuitOpened if one of them is running.
func (c *carrier) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed, c.stopped = true, true
	return c.half.Stop()
}

// Drained polls and reports whether all posted requests have been flushed.
func (c *carrier) Drained() bool {
	c.poll()
	c.domain.loop.Poll()
	if !c.half.Drained() || c.copying > 0 {
		return false
	}
	c.dropUnfinished()
	return true
}

// Close closes the circuit and destroys the queue pair.
func (c *carrier) Close() error {
	if !c.lane.Conn.Sending {
		c.port.opts.Circuits.Cancel(c.token)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed, c.stopped = true, true
	if c.half != nil {
		c.port.Unwatch(c.half.Num(), c.lane)
		if err := c.half.Close(); err != nil {
			return err
		}
		if c.copying > 0 { // it was not drained
			if err := c.domain.loop.Close(); err != nil {
				return err
			}
		}
		c.dropUnfinished()
	}
	if c.closeCircuit != nil {
		c.closeCircuit("the lane has ended")
		c.closeCircuit = nil
	}
	var errs []error
	if c.cq != nil {
		errs = append(errs, c.cq.Close())
	}
	if c.mr != nil {
		errs = append(errs, c.mr.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, m := range []*ibv.Memory{c.mem, c.cqMem} {
		if m != nil {
			errs = append(errs, m.Free())
		}
	}
	c.domain.remove(c)
	return errors.Join(errs...)
}
