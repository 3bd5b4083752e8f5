package comm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/onesided"
)

// Errors of other ranks.
var (
	errPeerSilent  = fault.ErrUnreachable
	errPeerRefused = fault.ErrPeerRefused
)

// A Buffer is memory that each rank has registered, with a size of its own. Every rank to which this one has a connection can be
// written to, read from and signalled in, at any offset.
type Buffer struct {
	comm    *Comm
	region  Region
	local   *window
	remotes []onesided.Remote // by rank; of a rank without a connection only the number is known
	ended   atomic.Bool
}

var errEnded = fmt.Errorf("%w: the buffer was deregistered before", fault.ErrUsage)

// bufferEntry is the size of an entry in bytes, by which the other ranks learn of a buffer: the ID of its window 8, and its size 8.
const bufferEntry = 16

// Register registers memory with all ranks. All ranks have to call it, in the same order, after Setup has set up the connections that
// the buffer is to be used with. The sizes may differ.
func (c *Comm) Register(r Region) (*Buffer, error) {
	if err := c.lockCollective(); err != nil {
		return nil, err
	}
	defer c.collective.Unlock()
	b := &Buffer{comm: c, region: r}
	err := r.check(c.process.host.GPU)
	if err == nil {
		b.local, err = c.register(r)
	}
	err = errors.Join(err, b.exchange(time.Now().Add(c.process.bootstrapTimeout())))
	if err = c.agree("register its buffer", err); err != nil {
		if b.local != nil {
			err = errors.Join(err, c.deregister(b.local))
		}
		return nil, err
	}
	return b, nil
}

// exchange tells all ranks of the local window, and waits until the windows of connected ranks are known. A rank that has no window
// takes part all the same, so that the calls of all ranks stay the same.
func (b *Buffer) exchange(deadline time.Time) error {
	c := b.comm
	n, rank := c.Size(), c.Rank()
	data := make([]byte, n*bufferEntry)
	if b.local != nil {
		binary.BigEndian.PutUint64(data[rank*bufferEntry:], uint64(b.local.ID()))
		binary.BigEndian.PutUint64(data[rank*bufferEntry+8:], b.region.Length)
	}
	if err := c.member.AllGather(data, c.process.bootstrapTimeout()); err != nil {
		return err
	}
	b.remotes = make([]onesided.Remote, n)
	for i := range b.remotes {
		e := data[i*bufferEntry:]
		id, size := uint32(binary.BigEndian.Uint64(e)), binary.BigEndian.Uint64(e[8:])
		if id == 0 || b.local == nil || c.peers[i] == nil {
			continue // that rank's error, or nothing to wait for
		}
		w, err := c.awaitWindow(i, id, deadline)
		if err != nil {
			return fmt.Errorf("buffer of rank %d: %w", i, err)
		}
		if b.remotes[i] = w; size < w.Size {
			b.remotes[i].Size = size
		}
	}
	return nil
}

// Deregister ends the registration, on all ranks: all have to call it. No request may use the buffer any more. The memory is the
// caller's again when it returns without an error.
func (b *Buffer) Deregister() error {
	c := b.comm
	if err := c.lockCollective(); err != nil {
		return err
	}
	defer c.collective.Unlock()
	if b.ended.Swap(true) {
		return errEnded
	}
	err := c.member.Barrier(c.process.bootstrapTimeout()) // so that no rank ends its window while another writes there
	return errors.Join(err, c.deregister(b.local))
}

// Region returns the local memory.
func (b *Buffer) Region() Region { return b.region }

// Size returns the size of a rank's buffer, in bytes, or 0 if there is no connection to it.
func (b *Buffer) Size(rank int) uint64 {
	if rank < 0 || rank >= len(b.remotes) {
		return 0
	}
	return b.remotes[rank].Size
}

// peer returns the peer of a rank, and the buffer there.
func (b *Buffer) peer(rank int) (*onesided.Peer, *onesided.Remote, error) {
	if b.ended.Load() {
		return nil, nil, errEnded
	}
	if rank < 0 || rank >= len(b.remotes) {
		return nil, nil, fmt.Errorf("%w: rank %d: there are %d ranks, counted from 0", ErrArgument, rank, len(b.remotes))
	}
	r := &b.remotes[rank]
	if r.ID == 0 {
		return nil, nil, fmt.Errorf("%w, before Register", errNotSetUp(rank))
	}
	return b.comm.peers[rank], r, nil
}

// transfer returns the peer of a rank, and the buffer there. It returns an error unless a range of this buffer on the rank, and one
// of the same size of a local buffer, are inside the buffers.
func (b *Buffer) transfer(rank int, offset uint64, local *Buffer, localOffset, size uint64) (*onesided.Peer, *onesided.Remote, error) {
	peer, r, err := b.peer(rank)
	if err == nil {
		err = local.inside(localOffset, size)
	}
	if err == nil {
		err = insideRank(rank, offset, size, r.Size)
	}
	return peer, r, err
}

// Write writes size bytes at offset srcOff of the local buffer src to offset dstOff of this buffer on a rank. It returns when the
// request is queued; see [Connection.Put].
func (b *Buffer) Write(rank int, dstOff uint64, src *Buffer, srcOff, size uint64) error {
	peer, r, err := b.transfer(rank, dstOff, src, srcOff, size)
	if err == nil {
		_, err = b.comm.begin(func() (onesided.Op, error) { return peer.Put(r.ID, dstOff, src.local.Window, srcOff, size) })
	}
	return namedGone("write", rank, err)
}

// Read reads size bytes at offset srcOff of this buffer on a rank into offset dstOff of the local buffer dst. The data is there
// after Flush.
func (b *Buffer) Read(rank int, srcOff uint64, dst *Buffer, dstOff, size uint64) error {
	peer, r, err := b.transfer(rank, srcOff, dst, dstOff, size)
	if err == nil {
		_, err = b.comm.begin(func() (onesided.Op, error) { return peer.Get(r.ID, srcOff, dst.local.Window, dstOff, size) })
	}
	return namedGone("read", rank, err)
}

// Signal changes the 64-bit word at an offset of this buffer on a rank, a multiple of 8. The rank sees it after the data of
// all earlier writes to it. Signals of several ranks may add to one word. A word in GPU memory is changed by an adapter of the rank, and
// no other agent may change it meanwhile; a kernel there may poll it.
func (b *Buffer) Signal(rank int, offset uint64, do onesided.SignalOp, value uint64) error {
	peer, r, err := b.peer(rank)
	if err == nil {
		err = checkWord(offset)
	}
	if err == nil {
		err = insideRank(rank, offset, 8, r.Size)
	}
	if err == nil && (do < onesided.SignalSet || do > onesided.SignalInc) {
		err = fmt.Errorf("%w: operation %d: want set (1), add (2) or increment (3)", ErrArgument, do)
	}
	if err == nil {
		_, err = b.comm.begin(func() (onesided.Op, error) {
			return peer.Signal(onesided.Signal{Window: r.ID, Do: do, Offset: offset, Value: value})
		})
	}
	return namedGone("signal", rank, err)
}

// Load returns the word at an offset of the local buffer. All writes that preceded the signals which it shows are visible after it. A
// word in GPU memory is read by an adapter, for which Load waits: microseconds, or until a port has a link again.
func (b *Buffer) Load(offset uint64) (v uint64, err error) {
	switch err = b.checkWord(offset); {
	case err != nil:
	case b.region.Kind == lane.GPUMemory:
		v, err = b.loadGPU(offset)
	default:
		var w *atomic.Uint64
		if w, err = b.local.Word(offset); err == nil {
			return w.Load(), nil
		}
	}
	return v, named("load", err)
}

// Wait waits until the word at an offset of the local buffer is at least value. It fails when a rank that can signal in the buffer
// dies before. A word in GPU memory is read by an adapter again and again, so that Wait may return a millisecond late.
func (b *Buffer) Wait(offset, value uint64, timeout time.Duration) error {
	err := b.checkWord(offset)
	if err == nil {
		what := func() string { return fmt.Sprintf("the word at offset %d has not become %d", offset, value) }
		if b.region.Kind == lane.GPUMemory {
			err = b.waitGPU(offset, value, timeout, what)
		} else {
			var w *atomic.Uint64
			if w, err = b.local.Word(offset); err == nil {
				err = b.comm.awaitWord(w, value, timeout, what, b.lost)
			}
		}
	}
	return named("wait", err)
}

// checkWord returns an error if there is no word at an offset of the local buffer.
func (b *Buffer) checkWord(offset uint64) error {
	if err := checkWord(offset); err != nil {
		return err
	}
	return b.inside(offset, 8)
}

// lost returns the error of a lost peer that knows the buffer, or nil.
func (b *Buffer) lost() error {
	for rank := range b.remotes {
		if b.remotes[rank].ID == 0 {
			continue
		}
		if err := b.comm.peers[rank].Err(); err != nil {
			return err
		}
	}
	return nil
}

// Flush returns when all earlier requests of this rank to a rank are done: see [Connection.Flush].
func (b *Buffer) Flush(rank int, timeout time.Duration) error {
	peer, _, err := b.peer(rank)
	if err == nil {
		err = b.comm.flush(peer, timeout, func() string { return fmt.Sprintf("not all data has arrived at rank %d", rank) })
	}
	return named("flush", err)
}

// inside returns an error if a range is not inside the local buffer.
func (b *Buffer) inside(offset, size uint64) error {
	if b.ended.Load() {
		return errEnded
	}
	return inside("the local buffer", offset, size, b.region.Length)
}

// insideRank returns an error if a range is not inside the buffer of a rank, which has limit bytes.
func insideRank(rank int, offset, size, limit uint64) error {
	if fits(offset, size, limit) { // without the text, which takes memory
		return nil
	}
	return inside(fmt.Sprintf("the buffer of rank %d", rank), offset, size, limit)
}

// checkWord returns an error if no word can be at an offset of a buffer.
func checkWord(offset uint64) error {
	if offset%8 == 0 {
		return nil
	}
	return fmt.Errorf("%w: a signal word at offset %d: want a multiple of 8", ErrArgument, offset)
}

// namedGone is named for a request that concerns the buffer of a rank. It says what to do where that one has ended.
func namedGone(call string, rank int, err error) error {
	if errors.Is(err, conn.ErrWindowGone) {
		err = fmt.Errorf("%w: rank %d has deregistered its buffer: all ranks have to deregister it together, when none uses it any more", err, rank)
	}
	return named(call, err)
}

// named adds the call to an error.
func named(call string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", call, err)
}
