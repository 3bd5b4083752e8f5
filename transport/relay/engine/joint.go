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
	"ncclmesh/transport/topology"
)

// port is the part of an RDMA port that a circuit needs. Verbs ports and circuit ports have it.
type port interface {
	Context() *ibv.Context
	Attr() *ibv.PortAttr
	Now() *topology.Port
	Reads(most int) (begun, answered uint8)
	Half(h *handshake.Lane, from topology.Address, qpn, psn uint32)
	Init(qp *ibv.QP, access uint32) error
	PSN(whose any) uint32
	Join(qp *ibv.QP, k verbs.Link) error
}

var _ port = (*verbs.Port)(nil)

// Sides of a circuit at the relay.
const (
	before = 0 // towards the sender
	behind = 1 // towards the receiver
)

// side is the endpoint of one hop, with its resources.
type side struct {
	*hop.Half
	leg   relay.Leg
	port  port
	queue *queue
	pd    *ibv.PD
	psn   uint32
	mrs   []*ibv.MR
}

// circuit is a circuit at a relay.
type joint struct {
	engine *Engine
	how    relay.Joining
	ask    *handshake.Carry
	slot   int
	ring   int // bytes
	reads  uint8
	mem    *ibv.Memory
	sides  [2]side
	room   uint32 // bytes of the smallest ring from here to the receiver

	mu      sync.Mutex
	streams [2]stream // by the side from which their frames arrive
	busy    bool      // Connect is running
	begun   bool      // Connect has been called
	dropped error     // reason for the teardown; nil: none
	told    bool      // Ended was called, or is not needed

	// Progress of the teardown. Each of these is set once, in this order.
	lowering bool          // the teardown goroutine runs
	stopped  bool          // its queue pairs are in ERR
	drained  chan struct{} // holds a token after all requests that were posted to them have been polled
	down     bool          // its queue pairs are destroyed, or are about to be
}

// newCircuit makes the endpoints of a circuit, its memory and its keys.
func newJoint(e *Engine, ask *handshake.Carry, how relay.Joining) (_ *joint, err error) {
	j := &joint{engine: e, how: how, ask: ask, slot: -1, drained: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, j.destroy())
		}
	}()
	for i, leg := range []relay.Leg{how.In, how.Out} {
		p, ok := leg.Port.(port)
		if !ok {
			return nil, fmt.Errorf("%w: %v is not an RDMA port", fault.ErrInternal, leg.Port.Now())
		}
		j.sides[i] = side{leg: leg, port: p}
	}
	longest := min(j.sides[before].port.Attr().MaxMsgSz, j.sides[behind].port.Attr().MaxMsgSz, ask.Half.MaxMsg)
	if j.ring, err = e.lend(ask.Room, longest); err != nil {
		return nil, err
	}
	j.room = uint32(j.ring)
	if j.mem, err = ibv.Alloc(j.ring + hop.BackRing + (hop.Forth+hop.Back)*hop.HeaderSize); err != nil {
		return nil, err
	}
	if j.slot, err = e.take(); err != nil {
		return nil, err
	}
	for i := range j.sides {
		if err = j.makeSide(i); err != nil {
			return nil, fmt.Errorf("%v: %w", j.sides[i].leg.Port.Now(), err)
		}
	}
	j.carve()
	if err = j.register(); err != nil {
		return nil, err
	}
	for i, access := range []uint32{ibv.IBV_ACCESS_LOCAL_WRITE | ibv.IBV_ACCESS_REMOTE_WRITE, ibv.IBV_ACCESS_LOCAL_WRITE | ibv.IBV_ACCESS_REMOTE_WRITE | ibv.IBV_ACCESS_REMOTE_READ} {
		if err = j.sides[i].port.Init(j.sides[i].QP, access); err != nil {
			return nil, err
		}
	}
	e.slots[j.slot].Store(j)
	return j, nil
}

// makeSide makes the endpoint of a hop.
func (j *joint) makeSide(i int) (err error) {
	s := &j.sides[i]
	s.psn = s.port.PSN(fmt.Sprintf("side %d of %v", i, j.how.In.Hop))
	if s.pd, err = s.port.Context().AllocPD(); err != nil {
		return err
	}
	if s.queue, err = j.engine.queueOn(s.port.Context()); err != nil {
		return err
	}
	receives := []int{hop.TowardsReceiver, hop.TowardsSender}[i]
	s.Half, err = hop.NewHalf(s.pd, s.queue.CQ, receives, uint32(j.slot*2+i))
	return err
}

// carve divides the memory into the two rings and the copies of headers.
func (j *joint) carve() {
	sizes := [2]int{before: j.ring, behind: hop.BackRing}
	for i := range j.streams {
		s := &j.streams[i]
		s.joint, s.next, s.forth = j, 1, i == before
		s.ring = ibv.Carve[byte](j.mem, sizes[i])
	}
	for i := range j.streams {
		j.streams[i].heads = ibv.Carve[[hop.HeaderSize]byte](j.mem, j.streams[i].most())
	}
}

// register registers each ring for both hops: for writing by the peer that its frames come from, for sending on the
// other side, and for remote reads if that side leads to the receiver.
func (j *joint) register() error {
	for i := range j.streams {
		s, from, to := &j.streams[i], &j.sides[i], &j.sides[1-i]
		in, err := from.register(ibv.AddrOf(&s.ring[0]), len(s.ring), ibv.IBV_ACCESS_LOCAL_WRITE|ibv.IBV_ACCESS_REMOTE_WRITE)
		if err != nil {
			return err
		}
		access := uint32(0)
		if s.forth && j.how.Last {
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
		s.lent = handshake.Ring{Base: uint64(in.Addr()), Key: in.RKey(), Size: uint32(len(s.ring))}
		s.read = handshake.Ring{Base: uint64(out.Addr()), Key: out.RKey(), Size: uint32(len(s.ring))}
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
func (j *joint) offer(i int) (o relay.Offer) {
	s := &j.sides[i]
	s.port.Half(&o.Half, s.leg.From, s.Num(), s.psn)
	o.Half.Kind = handshake.LaneVerbs
	o.Write, o.Room = j.streams[i].lent, j.room
	return o
}

// Next returns the endpoint of the next hop, and the rings that the process there writes and reads.
func (j *joint) Next() relay.Offer {
	o := j.offer(behind)
	if j.how.Last {
		o.Read = j.streams[before].read
		_, j.reads = j.sides[behind].port.Reads(hop.Reads)
		o.Half.Token = uint64(j.reads) // number of READs that are answered
	}
	return o
}

// Prev returns the endpoint of the previous hop, and the ring that the process there writes.
func (j *joint) Prev() relay.Offer { return j.offer(before) }

// Connect connects both endpoints.
func (j *joint) Connect(_ context.Context, next *handshake.Carried) error {
	if next == nil {
		return fmt.Errorf("%w: a circuit over RDMA without the next hop", fault.ErrInternal)
	}
	if err := j.connecting(next); err != nil {
		return err
	}
	err := j.join(before, j.ask.Half, 1)
	if err == nil {
		err = j.join(behind, next.Half, max(1, j.reads))
	}
	j.mu.Lock()
	j.busy = false
	if err == nil && j.dropped != nil {
		err = j.dropped
	}
	j.beginToLower()
	j.mu.Unlock()
	return err
}

// prepare makes the circuit ready for frames that arrive once it is connected.
func (j *joint) connecting(next *handshake.Carried) error {
	if err := j.engine.run(j.sides[before].port.Context().Library()); err != nil { // the thread may have ended meanwhile
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.begun = true
	if j.dropped != nil {
		return j.dropped
	}
	if next.Room > 0 {
		j.room = min(j.room, next.Room)
	}
	write := next.Write
	switch {
	case j.how.Last:
		write = handshake.Ring{} // the receiver has posted receives instead
	case write.Size < hop.MinRing || write.Size > hop.MaxRing:
		return fmt.Errorf("the next relay offers a ring of %d bytes", write.Size)
	default:
		j.room = min(j.room, write.Size)
	}
	back := j.ask.Back
	if back.Size > 0 && back.Size < hop.BackRing {
		return fmt.Errorf("the previous relay offers a return ring of %d bytes", back.Size)
	}
	j.streams[before].out = hop.NewWindow(write, hop.Forth, hop.ForthUndelivered)
	j.streams[behind].out = hop.NewWindow(back, hop.Back, hop.BackUndelivered)
	if err := j.sides[before].PostReceives(hop.TowardsReceiver); err != nil {
		return err
	}
	if err := j.sides[behind].PostReceives(hop.TowardsSender); err != nil {
		return err
	}
	j.busy = true
	return nil
}

// join connects the endpoint of a hop with that of its peer.
func (j *joint) join(i int, remote handshake.Lane, answered uint8) error {
	s := &j.sides[i]
	if !remote.Addr.IsValid() || remote.Addr.IsUnspecified() {
		remote.Addr = s.leg.To
	}
	return s.port.Join(s.QP, verbs.Link{From: s.leg.From, Remote: remote, PSN: s.psn, Begun: 1, Answered: answered})
}

// Drop ends the circuit.
func (j *joint) Drop(why error) {
	j.mu.Lock()
	if j.told = true; j.dropped == nil {
		j.dropped = why
	}
	j.beginToLower()
	j.mu.Unlock()
}

// reportEnd calls Ended, if it was not called before.
func (j *joint) tellEnded(why error) {
	j.mu.Lock()
	told := j.told || !j.begun
	j.told = true
	j.mu.Unlock()
	if !told && j.how.Ended != nil {
		j.how.Ended(why)
	}
}

// name returns a name of a hop for errors.
func (j *joint) name(i int) string {
	leg := &j.sides[i].leg
	peer := leg.Name
	if peer == "" {
		peer = leg.To.Unmap().String()
	}
	return fmt.Sprintf("%s to %s", leg.Port.Now().Short(), peer)
}
