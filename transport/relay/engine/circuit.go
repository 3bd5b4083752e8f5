package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane/verbs"
	"ncclmesh/transport/relay"
	"ncclmesh/transport/relay/hop"
)

// Sides of a circuit at the relay.
const (
	towardsSender   = 0 // towards the sender
	towardsReceiver = 1 // towards the receiver
)

// side is the endpoint of one hop, with its resources.
type side struct {
	*hop.Endpoint
	leg   relay.Leg
	port  *verbs.Port
	queue *queue
	pd    *ibv.PD
	psn   uint32
	ece   handshake.ECE // options that the endpoint offers or, once connected, has
	mrs   []*ibv.MR
}

// circuit is a circuit at a relay.
type circuit struct {
	forwarder *Forwarder
	pair      relay.HopPair
	ask       *handshake.CircuitOpen
	slot      int
	ring      int // bytes
	reads     uint8
	mem       *ibv.Memory
	sides     [2]side
	room      uint32 // bytes of the smallest ring from here to the receiver

	mu            sync.Mutex
	streams       [2]stream // by the side from which their frames arrive
	inConnect     bool      // Connect is running
	connectCalled bool      // Connect has been called
	dropped       error     // reason for the teardown; nil: none
	endReported   bool      // Ended was called, or is not needed

	// Progress of the teardown. Each of these is set once, in this order.
	tearingDown bool          // the teardown goroutine runs
	stopped     bool          // its queue pairs are in ERR
	drained     chan struct{} // holds a token after all requests that were posted to them have been polled
	destroyed   bool          // its queue pairs are destroyed, or are about to be
}

// newCircuit makes the endpoints of a circuit, its memory and its keys.
func newCircuit(f *Forwarder, ask *handshake.CircuitOpen, pair relay.HopPair) (_ *circuit, err error) {
	c := &circuit{forwarder: f, pair: pair, ask: ask, slot: -1, drained: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.destroy())
		}
	}()
	for i, leg := range []relay.Leg{pair.In, pair.Out} {
		p, ok := leg.Port.(*verbs.Port)
		if !ok {
			return nil, fmt.Errorf("%w: %v is not an RDMA port", fault.ErrInternal, leg.Port.Now())
		}
		c.sides[i] = side{leg: leg, port: p}
	}
	longest := min(c.sides[towardsSender].port.Attr().MaxMsgSz, c.sides[towardsReceiver].port.Attr().MaxMsgSz, ask.Half.MaxMsg)
	if c.ring, err = f.allocRing(ask.Room, longest); err != nil {
		return nil, err
	}
	c.room = uint32(c.ring)
	if c.mem, err = ibv.Alloc(c.ring + hop.BackRing + (hop.Forth+hop.Back)*hop.HeaderSize); err != nil {
		return nil, err
	}
	if c.slot, err = f.reserveSlot(); err != nil {
		return nil, err
	}
	for i := range c.sides {
		if err = c.makeSide(i); err != nil {
			return nil, fmt.Errorf("%v: %w", c.sides[i].leg.Port.Now(), err)
		}
	}
	c.carve()
	if err = c.register(); err != nil {
		return nil, err
	}
	for i, access := range []uint32{ibv.IBV_ACCESS_LOCAL_WRITE | ibv.IBV_ACCESS_REMOTE_WRITE, ibv.IBV_ACCESS_LOCAL_WRITE | ibv.IBV_ACCESS_REMOTE_WRITE | ibv.IBV_ACCESS_REMOTE_READ} {
		if c.sides[i].ece, err = c.sides[i].port.Init(c.sides[i].QP, access); err != nil {
			return nil, err
		}
	}
	f.slots[c.slot].Store(c)
	return c, nil
}

// makeSide makes the endpoint of a hop.
func (c *circuit) makeSide(i int) (err error) {
	s := &c.sides[i]
	s.psn = s.port.PSN(fmt.Sprintf("side %d of %v", i, c.pair.In.Hop))
	if s.pd, err = s.port.Context().AllocPD(); err != nil {
		return err
	}
	if s.queue, err = c.forwarder.reserveQueue(s.port.Context()); err != nil {
		return err
	}
	receives := []int{hop.TowardsReceiver, hop.TowardsSender}[i]
	s.Endpoint, err = hop.NewEndpoint(s.pd, s.queue.CQ, receives, uint32(c.slot*2+i))
	return err
}

// carve divides the memory into the two rings and the copies of headers.
func (c *circuit) carve() {
	sizes := [2]int{towardsSender: c.ring, towardsReceiver: hop.BackRing}
	for i := range c.streams {
		s := &c.streams[i]
		s.circuit, s.next, s.forth = c, 1, i == towardsSender
		s.ring = ibv.Carve[byte](c.mem, sizes[i])
	}
	for i := range c.streams {
		c.streams[i].heads = ibv.Carve[[hop.HeaderSize]byte](c.mem, c.streams[i].most())
	}
}

// register registers each ring for both hops: for writing by the peer that its frames come from, for sending on the
// other side, and for remote reads if that side leads to the receiver.
func (c *circuit) register() error {
	for i := range c.streams {
		s, from, to := &c.streams[i], &c.sides[i], &c.sides[1-i]
		in, err := from.register(ibv.AddrOf(&s.ring[0]), len(s.ring), ibv.IBV_ACCESS_LOCAL_WRITE|ibv.IBV_ACCESS_REMOTE_WRITE)
		if err != nil {
			return err
		}
		access := uint32(0)
		if s.forth && c.pair.Last {
			access = ibv.IBV_ACCESS_REMOTE_READ
		}
		out, err := to.register(ibv.AddrOf(&s.ring[0]), len(s.ring), access)
		if err != nil {
			return err
		}
		heads, err := to.register(ibv.AddrOf(&s.heads[0]), len(s.heads)*hop.HeaderSize, 0)
		if err != nil {
			return err
		}
		s.writeRing = handshake.Ring{Base: uint64(in.Addr()), Key: in.RKey(), Size: uint32(len(s.ring))}
		s.readRing = handshake.Ring{Base: uint64(out.Addr()), Key: out.RKey(), Size: uint32(len(s.ring))}
		s.ringKey, s.headKey = out.LKey(), heads.LKey()
	}
	return nil
}

func (s *side) register(addr uintptr, size int, access uint32) (*ibv.MR, error) {
	mr, err := s.pd.RegMR(addr, uintptr(size), access)
	if err == nil {
		s.mrs = append(s.mrs, mr)
	}
	return mr, err
}

// offer returns the parameters that the process at the other end of a side needs.
func (c *circuit) offer(i int) (o relay.Offer) {
	s := &c.sides[i]
	s.port.Half(&o.Half, s.leg.From, s.Num(), s.psn)
	o.Half.Kind, o.Half.ECE = handshake.LaneVerbs, s.ece
	o.Write, o.Room = c.streams[i].writeRing, c.room
	return o
}

// Next returns the endpoint of the next hop, and the rings that the process there writes and reads.
func (c *circuit) Next() relay.Offer {
	o := c.offer(towardsReceiver)
	if c.pair.Last {
		o.Read = c.streams[towardsSender].readRing
		_, c.reads = c.sides[towardsReceiver].port.Reads(hop.Reads)
		o.Half.Token = uint64(c.reads) // number of READs that are answered
	}
	return o
}

// Prev returns the endpoint of the previous hop, and the ring that the process there writes.
func (c *circuit) Prev() relay.Offer { return c.offer(towardsSender) }

// Connect connects both endpoints.
func (c *circuit) Connect(_ context.Context, next *handshake.CircuitOpened) error {
	if next == nil {
		return fmt.Errorf("%w: a circuit over RDMA without the next hop", fault.ErrInternal)
	}
	if err := c.prepare(next); err != nil {
		return err
	}
	err := c.join(towardsSender, c.ask.Half, 1)
	if err == nil {
		err = c.join(towardsReceiver, next.Half, max(1, c.reads))
	}
	c.mu.Lock()
	c.inConnect = false
	if err == nil && c.dropped != nil {
		err = c.dropped
	}
	c.startTeardown()
	c.mu.Unlock()
	return err
}

// prepare makes the circuit ready for frames that arrive once it is connected.
func (c *circuit) prepare(next *handshake.CircuitOpened) error {
	if err := c.forwarder.run(c.sides[towardsSender].port.Context().Library()); err != nil { // the thread may have ended meanwhile
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connectCalled = true
	if c.dropped != nil {
		return c.dropped
	}
	if next.Room > 0 {
		c.room = min(c.room, next.Room)
	}
	write := next.Write
	switch {
	case c.pair.Last:
		write = handshake.Ring{} // the receiver has posted receives instead
	case write.Size < hop.MinRing || write.Size > hop.MaxRing:
		return fmt.Errorf("the next relay offers a ring of %d bytes", write.Size)
	default:
		c.room = min(c.room, write.Size)
	}
	back := c.ask.Back
	if back.Size > 0 && back.Size < hop.BackRing {
		return fmt.Errorf("the previous relay offers a return ring of %d bytes", back.Size)
	}
	c.streams[towardsSender].out = hop.NewWindow(write, hop.Forth, hop.ForthUndelivered)
	c.streams[towardsReceiver].out = hop.NewWindow(back, hop.Back, hop.BackUndelivered)
	if err := c.sides[towardsSender].PostReceives(hop.TowardsReceiver); err != nil {
		return err
	}
	if err := c.sides[towardsReceiver].PostReceives(hop.TowardsSender); err != nil {
		return err
	}
	c.inConnect = true
	return nil
}

// join connects the endpoint of a hop with that of its peer.
func (c *circuit) join(i int, remote handshake.Lane, answered uint8) (err error) {
	s := &c.sides[i]
	if !remote.Addr.IsValid() || remote.Addr.IsUnspecified() {
		remote.Addr = s.leg.To
	}
	s.ece, err = s.port.Join(s.QP, verbs.Link{From: s.leg.From, Remote: remote, PSN: s.psn, ECE: s.ece, Begun: 1, Answered: answered})
	return err
}

// Drop ends the circuit.
func (c *circuit) Drop(why error) {
	c.mu.Lock()
	if c.endReported = true; c.dropped == nil {
		c.dropped = why
	}
	c.startTeardown()
	c.mu.Unlock()
}

// reportEnd calls Ended, if it was not called before.
func (c *circuit) reportEnd(why error) {
	c.mu.Lock()
	reported := c.endReported || !c.connectCalled
	c.endReported = true
	c.mu.Unlock()
	if !reported && c.pair.Ended != nil {
		c.pair.Ended(why)
	}
}

// name returns a name of a hop for errors.
func (c *circuit) name(i int) string {
	leg := &c.sides[i].leg
	peer := leg.Name
	if peer == "" {
		peer = leg.To.Unmap().String()
	}
	return fmt.Sprintf("%s to %s", leg.Port.Now().Short(), peer)
}
