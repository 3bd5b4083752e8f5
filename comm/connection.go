package comm

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"ncclmesh/comm/fifo"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/onesided"
)

// A Connection is this rank's end of a connection with another rank, or with itself. Both ends have the same tag.
type Connection struct {
	comm   *Comm
	remote int
	tag    int
	region Region

	// Setup sets the fields below.
	peer         *onesided.Peer
	local        *window
	buffer       onesided.Remote // the remote buffer
	epochs       *epochs         // has the word that the other side's signals raise,
	word         uint64          // at this offset:
	epoch        *atomic.Uint64
	remoteEpochs uint32 // the other side's, in a window of its own,
	remoteWord   uint64 // at this offset
	fifo         *fifo.FIFO

	skipped  atomic.Uint64 // epochs that the next signal raises the other side's epoch by, beside its own
	expected atomic.Uint64 // epoch that the last Wait has waited for

	serving serving // the proxy's
}

// epochs is memory for the epochs of the connections of one Setup: a 64-bit word for each.
type epochs struct {
	memory *Memory
	window *window
}

// Connect makes a connection with a rank, whose local buffer is a region. Both ranks have to call it with the same tag, any
// number. The buffers of the two ends may have different sizes, and connections may share a buffer. The connection can be used after Setup.
func (c *Comm) Connect(remote, tag int, r Region) error {
	if err := c.usable(); err != nil {
		return err
	}
	if remote < 0 || remote >= c.Size() {
		return fmt.Errorf("%w: connection to rank %d: there are %d ranks, counted from 0", ErrArgument, remote, c.Size())
	}
	if err := r.check(c.process.host.GPU); err != nil {
		return err
	}
	same := func(x *Connection) bool { return x.remote == remote && x.tag == tag }
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.unconnected, same) || slices.ContainsFunc(*c.connections.Load(), same) {
		return fmt.Errorf("%w: there is a connection to rank %d with tag %d already", ErrArgument, remote, tag)
	}
	c.unconnected = append(c.unconnected, &Connection{comm: c, remote: remote, tag: tag, region: r})
	return nil
}

// Connections returns all connections that are set up, in the order of the calls of Connect.
func (c *Comm) Connections() []*Connection { return slices.Clone(*c.connections.Load()) }

// Connection returns the connection with a rank and a tag.
func (c *Comm) Connection(remote, tag int) (*Connection, error) {
	for _, x := range *c.connections.Load() {
		if x.remote == remote && x.tag == tag {
			return x, nil
		}
	}
	return nil, fmt.Errorf("%w: there is no connection to rank %d with tag %d: call Connect on both ranks, and then Setup", ErrArgument, remote, tag)
}

func (x *Connection) String() string {
	return fmt.Sprintf("connection of rank %d to rank %d, tag %d", x.comm.Rank(), x.remote, x.tag)
}

// Remote returns the rank of the other side.
func (x *Connection) Remote() int { return x.remote }

// Tag returns the tag.
func (x *Connection) Tag() int { return x.tag }

// Local returns the local buffer.
func (x *Connection) Local() Region { return x.region }

// RemoteSize returns the size of the other side's buffer, in bytes.
func (x *Connection) RemoteSize() uint64 { return x.buffer.Size }

// FIFO returns the queue by which processors and GPUs request puts and signals of this connection.
func (x *Connection) FIFO() *fifo.FIFO { return x.fifo }

// EpochAddr returns the address of the word that holds the epoch. It may be read by a processor or a GPU, with acquire.
func (x *Connection) EpochAddr() uintptr { return x.epochs.window.Base() + uintptr(x.word) }

// checkPut returns an error if a put is not inside the two buffers.
func (x *Connection) checkPut(dst, src, size uint64) error {
	if err := inside("the local buffer", src, size, x.region.Length); err != nil {
		return fmt.Errorf("%v: %w", x, err)
	}
	if err := inside("the remote buffer", dst, size, x.buffer.Size); err != nil {
		return fmt.Errorf("%v: %w", x, err)
	}
	return nil
}

// Put writes size bytes at offset src of the local buffer to offset dst of the remote buffer. It returns when the request is
// queued, and waits only while [onesided.MaxOps] requests are outstanding.
func (x *Connection) Put(dst, src, size uint64) error {
	if err := x.checkPut(dst, src, size); err != nil {
		return err
	}
	_, err := x.comm.begin(func() (onesided.Op, error) { return x.put(dst, src, size) })
	return x.named("put", err)
}

func (x *Connection) put(dst, src, size uint64) (onesided.Op, error) {
	return x.peer.Put(x.buffer.ID, dst, x.local.Window, src, size)
}

// Signal raises the other side's epoch by one. The other side sees it after the data of all earlier puts to that rank.
func (x *Connection) Signal() error {
	n := x.skipped.Swap(0)
	_, err := x.comm.begin(func() (onesided.Op, error) { return x.peer.Signal(x.signal(n + 1)) })
	if err != nil {
		x.skipped.Add(n)
	}
	return x.named("signal", err)
}

// signal returns the signal that raises the other side's epoch by n.
func (x *Connection) signal(n uint64) onesided.Signal {
	return onesided.Signal{Window: x.remoteEpochs, Do: onesided.SignalAdd, Offset: x.remoteWord, Value: n}
}

// PutWithSignal is Put and then Signal.
func (x *Connection) PutWithSignal(dst, src, size uint64) error {
	if err := x.checkPut(dst, src, size); err != nil {
		return err
	}
	n := x.skipped.Swap(0)
	_, err := x.comm.begin(func() (onesided.Op, error) { return x.putSignal(dst, src, size, n+1) })
	if err != nil {
		x.skipped.Add(n)
	}
	return x.named("putWithSignal", err)
}

func (x *Connection) putSignal(dst, src, size, n uint64) (onesided.Op, error) {
	return x.peer.PutSignal(x.buffer.ID, dst, x.local.Window, src, size, x.signal(n))
}

// PutWithSignalAndFlush is Put, Signal and then Flush.
func (x *Connection) PutWithSignalAndFlush(dst, src, size uint64, timeout time.Duration) error {
	if err := x.PutWithSignal(dst, src, size); err != nil {
		return err
	}
	return x.Flush(timeout)
}

// Get reads size bytes at offset src of the remote buffer into offset dst of the local buffer. It returns when the request is
// queued; the data is there after Flush.
func (x *Connection) Get(dst, src, size uint64) error {
	if err := inside("the local buffer", dst, size, x.region.Length); err != nil {
		return fmt.Errorf("%v: %w", x, err)
	}
	if err := inside("the remote buffer", src, size, x.buffer.Size); err != nil {
		return fmt.Errorf("%v: %w", x, err)
	}
	_, err := x.comm.begin(func() (onesided.Op, error) { return x.peer.Get(x.buffer.ID, src, x.local.Window, dst, size) })
	return x.named("get", err)
}

// Flush returns when all earlier puts, signals and gets of this rank to the other side's rank are done: the data has arrived, and
// the sources may be overwritten. If none is outstanding it returns at once. [Forever] is no time-out; after a time-out it may be called again.
func (x *Connection) Flush(timeout time.Duration) error {
	return x.named("flush", x.comm.flush(x.peer, timeout, func() string { return "not all data has arrived" }))
}

// Wait waits until the other side has signalled once more than at the last Wait: the first call waits for the first signal, and so
// on. After a time-out it may be called again, for the same signal. It fails when the other side dies and the signal has not arrived.
func (x *Connection) Wait(timeout time.Duration) error {
	want := x.expected.Add(1)
	what := func() string { return fmt.Sprintf("signal %d has not arrived", want) }
	err := x.comm.awaitWord(x.epoch, want, timeout, what, x.peer.Err)
	if err != nil {
		x.expected.Add(^uint64(0))
	}
	return x.named("wait", err)
}

// Epoch returns how far the other side's signals have raised the epoch. All puts that preceded them are visible after it. It must not be
// called after Close.
func (x *Connection) Epoch() uint64 { return x.epoch.Load() }

// IncrementEpoch makes the next signal raise the other side's epoch by one more, as a signal would that is sent together with it.
func (x *Connection) IncrementEpoch() { x.skipped.Add(1) }

// named adds the connection and the call to an error.
func (x *Connection) named(call string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%v: %s: %w", x, call, err)
}

// newEpochs makes memory for n epochs.
//
// Preconditions: c.collective is locked.
func (c *Comm) newEpochs(n int) (*epochs, error) {
	m, err := Alloc(8 * max(n, 1))
	if err != nil {
		return nil, err
	}
	w, err := c.register(Region{Kind: lane.HostMemory, Addr: m.Addr(), Length: uint64(m.Len())})
	if err != nil {
		return nil, errors.Join(err, m.Free())
	}
	return &epochs{m, w}, nil
}

// errNotSetUp tells that there are no connections to a rank.
func errNotSetUp(rank int) error {
	return fmt.Errorf("%w: there is no connection to rank %d: call Connect on both ranks, and then Setup", fault.ErrUsage, rank)
}
