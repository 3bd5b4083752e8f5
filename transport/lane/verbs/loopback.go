package verbs

import (
	"errors"
	"fmt"
	"sync/atomic"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/turn"
)

// loopbackReads is the most READs that a loopback has outstanding.
const loopbackReads = 16

// Loopback is a queue pair that is connected to itself. By it a device reads memory of its own process, for two purposes:
//
//   - to make data visible to a GPU: the answer to a READ of GPU memory comes behind everything that the device has
//     written there before, as PCIe orders them;
//   - to copy from host memory to GPU memory, which the processor cannot reach.
//
// The zero value has no queue pair; Open makes it, and Renew makes it again. Open may be called from any goroutine; the
// other methods need the connection's mutex.
type Loopback struct {
	open atomic.Pointer[loopback]
	port atomic.Pointer[Port] // nil before Open
	turn turn.Turn            // held by Open

	flushing bool  // a READ of StartFlush is outstanding
	flushErr error // how the last one ended
}

// Copier is told of the READs that it began.
type Copier interface {
	// Copied reports that READ number is done, or has failed, after which the device does not touch its memory.
	Copied(number uint32, err error)
}

// loopback is an open queue pair.
type loopback struct {
	port *Port
	mem  *ibv.Memory // of work requests, completions and a byte that flushes read into
	mr   *ibv.MR
	cq   *ibv.CQ
	qp   *ibv.QP
	wc   []ibv.WC
	wr   []ibv.SendWR
	sge  []ibv.SGE
	byte []byte

	begun [loopbackReads]reading // a ring: READs complete in order
	first int
	count int
	err   error // why the queue pair is broken
}

// reading is a READ that is outstanding.
type reading struct {
	copier Copier
	number uint32
}

// Open makes the queue pair if there is none.
func (b *Loopback) Open(p *Port) error {
	b.turn.Lock()
	defer b.turn.Unlock()
	if b.open.Load() != nil {
		return nil
	}
	o, err := p.newLoopback()
	if err != nil {
		return fmt.Errorf("%v: no queue pair to itself, which GPU memory needs: %w", p, err)
	}
	b.port.Store(p)
	b.open.Store(o)
	return nil
}

// Renew replaces a queue pair that is broken, because its port had no link, or that was closed because a READ did not
// end. If it fails, a later call tries again.
func (b *Loopback) Renew() error {
	p, o := b.port.Load(), b.open.Load()
	if p == nil || o != nil && (o.err == nil || o.count > 0) {
		return nil
	}
	if err := b.Close(); err != nil {
		return err
	}
	return b.Open(p)
}

// Broken reports whether the queue pair is to be renewed. It is false before Open.
func (b *Loopback) Broken() bool {
	o := b.open.Load()
	return b.port.Load() != nil && (o == nil || o.err != nil)
}

// usable returns the queue pair, or why there is none that works.
func (b *Loopback) usable() (*loopback, error) {
	p, o := b.port.Load(), b.open.Load()
	switch {
	case p == nil:
		return nil, fmt.Errorf("%w: a copy of GPU memory that was not registered", fault.ErrInternal)
	case o == nil:
		return nil, fmt.Errorf("%w: %v: its queue pair to itself was closed, and could not be made again yet", fault.ErrDevice, p)
	}
	return o, o.err
}

// Room reports whether another READ can begin, or Copy returns an error, because the loopback has no queue pair that works.
func (b *Loopback) Room() bool {
	o := b.open.Load()
	return o == nil || o.err != nil || o.count < o.most()
}

// Copy begins to read length bytes at from, in memory of remote key rkey, to the address to, in memory of local key lkey.
// Copier is told when it is done, in a call of Poll.
//
// Preconditions: Room has returned true.
func (b *Loopback) Copy(c Copier, number uint32, to uintptr, lkey uint32, from uintptr, rkey uint32, length int) error {
	o, err := b.usable()
	if err != nil {
		return err
	}
	o.sge[0] = ibv.SGE{Addr: uint64(to), Length: uint32(length), LKey: lkey}
	o.wr[0] = ibv.SendWR{
		SGList: ibv.AddrOf(&o.sge[0]), NumSGE: 1,
		Opcode: ibv.IBV_WR_RDMA_READ, SendFlags: ibv.IBV_SEND_SIGNALED, RemoteAddr: uint64(from), RKey: rkey,
	}
	if _, err := o.qp.PostSend(&o.wr[0]); err != nil {
		return err
	}
	o.begun[(o.first+o.count)%len(o.begun)] = reading{c, number}
	o.count++
	return nil
}

// Poll handles the READs that are done. If it cannot, it closes the queue pair, so that they fail.
func (b *Loopback) Poll() {
	o := b.open.Load()
	for o != nil && o.count > 0 {
		n, err := o.cq.Poll(o.wc)
		if err != nil {
			o.err = err
			_ = b.Close() // the next call tries again
			return
		}
		for i := range n {
			o.complete(&o.wc[i])
		}
		if n == 0 {
			return
		}
	}
}

// StartFlush begins to make what the device has written visible to the GPU whose memory r is; see
// [lane.Domain]. place is the index of the connection's domain.
func (b *Loopback) StartFlush(place int, r *lane.Region, addr uintptr) (begun bool, err error) {
	if b.flushing {
		return false, fmt.Errorf("%w: a flush of %v while another is in progress", fault.ErrInternal, r.Memory)
	}
	o, err := b.usable()
	if err != nil {
		return false, err
	}
	if !b.Room() {
		return false, nil
	}
	if err := b.Copy(b, 0, ibv.AddrOf(&o.byte[0]), o.mr.LKey(), addr, r.RKeys[place], 1); err != nil {
		return false, err
	}
	b.flushing, b.flushErr = true, nil
	return true, nil
}

// Copied records how the READ of a flush ended.
func (b *Loopback) Copied(_ uint32, err error) { b.flushing, b.flushErr = false, err }

// Flushed polls, and reports whether the last flush is done.
func (b *Loopback) Flushed() (bool, error) {
	b.Poll()
	return !b.flushing, b.flushErr
}

// Close destroys the queue pair. READs that are outstanding fail.
func (b *Loopback) Close() error {
	o := b.open.Load()
	if o == nil {
		return nil
	}
	if err := o.close(); err != nil {
		return err
	}
	b.open.Store(nil)
	for ; o.count > 0; o.first, o.count = (o.first+1)%len(o.begun), o.count-1 {
		r := o.begun[o.first]
		err := fmt.Errorf("%w: %v: its queue pair to itself was closed", fault.ErrDevice, o.port)
		if o.err != nil {
			err = fmt.Errorf("%w: %w", err, o.err)
		}
		r.copier.Copied(r.number, err)
	}
	return nil
}

// newLoopback makes a queue pair that is connected to itself.
func (p *Port) newLoopback() (_ *loopback, err error) {
	o := &loopback{port: p}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	if o.mem, err = ibv.Alloc(loopbackReads*64 + 128 + 64 + 64); err != nil {
		return nil, err
	}
	o.wc, o.wr, o.sge = ibv.Carve[ibv.WC](o.mem, loopbackReads), ibv.Carve[ibv.SendWR](o.mem, 1), ibv.Carve[ibv.SGE](o.mem, 1)
	o.byte = ibv.Carve[byte](o.mem, 1)
	if o.mr, err = p.pd.RegMR(o.mem.Addr(), uintptr(o.mem.Len()), ibv.IBV_ACCESS_LOCAL_WRITE); err != nil {
		return nil, err
	}
	if o.cq, err = p.ctx.CreateCQ(loopbackReads, nil); err != nil {
		return nil, err
	}
	o.qp, err = p.pd.CreateQP(ibv.QPInit{SendCQ: o.cq, RecvCQ: o.cq, MaxSendWR: loopbackReads, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, Type: ibv.IBV_QPT_RC})
	if err != nil {
		return nil, err
	}
	if err = p.init(o.qp, ibv.IBV_ACCESS_REMOTE_READ); err != nil {
		return nil, err
	}
	addresses := p.Now().RankGIDs(p.opts.GIDs)
	if len(addresses) == 0 {
		return nil, fmt.Errorf("%w: %v has no address", fault.ErrDevice, p)
	}
	var self handshake.Lane
	psn := p.PSN(struct{ Loopback uint32 }{o.qp.Num()})
	p.Half(&self, addresses[0], o.qp.Num(), psn)
	begun, answered := p.Reads(loopbackReads)
	_, err = p.Join(o.qp, Link{From: addresses[0], Remote: self, PSN: psn, Probe: true, Begun: begun, Answered: answered})
	return o, err
}

// most returns how many READs may be outstanding.
func (o *loopback) most() int {
	begun, answered := o.port.Reads(loopbackReads)
	return int(min(begun, answered))
}

// complete handles the completion of the oldest READ.
func (o *loopback) complete(wc *ibv.WC) {
	if o.count == 0 {
		return
	}
	r := o.begun[o.first]
	o.begun[o.first] = reading{}
	o.first, o.count = (o.first+1)%len(o.begun), o.count-1
	var err error
	if wc.Status != ibv.IBV_WC_SUCCESS {
		err = fmt.Errorf("%w: %v: READ of its own memory: %w", fault.ErrDevice, o.port, wc.Err("itself"))
		if o.err == nil {
			o.err = err
		}
	}
	r.copier.Copied(r.number, err)
}

// close releases what has been made.
func (o *loopback) close() error {
	if o.qp != nil {
		if err := o.qp.Close(); err != nil {
			return err
		}
		o.qp = nil
	}
	var errs []error
	if o.cq != nil {
		errs = append(errs, o.cq.Close())
	}
	if o.mr != nil {
		errs = append(errs, o.mr.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if o.mem != nil {
		errs = append(errs, o.mem.Free())
	}
	return errors.Join(errs...)
}
