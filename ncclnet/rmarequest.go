package ncclnet

import (
	"fmt"

	"ncclmesh/ncclnet/rma"
)

// NCCL's signal operations (NCCL_NET_SIGNAL_OP).
const (
	NCCL_NET_SIGNAL_OP_INC = 1
	NCCL_NET_SIGNAL_OP_ADD = 2
)

// An RMARange is where a put or get begins in a window.
type RMARange struct {
	Window Handle // zero: there are no bytes
	Offset uint64
}

// An RMASignal changes a word of the other rank.
type RMASignal struct {
	Word  RMARange
	Op    uint32 // NCCL_NET_SIGNAL_OP_INC or NCCL_NET_SIGNAL_OP_ADD
	Value uint64
}

// RMAPut copies size bytes to a rank and then, if s is not nil, changes a word there. index is the series of the context. The request
// is never zero without an error.
func (n *Net) RMAPut(ctx Handle, index int, from RMARange, size uint64, to RMARange, rank int, s *RMASignal) (rma.Request, Result) {
	c, err := n.rmaSeries.find(ctx)
	if err != nil {
		return 0, n.result("iput", err)
	}
	q, err := n.rmaPut(c, index, from, size, to, rank, s)
	return q, n.failed(&c.group.failure, "iput", err)
}

func (n *Net) rmaPut(c *rmaSeries, index int, from RMARange, size uint64, to RMARange, rank int, s *RMASignal) (rma.Request, error) {
	source, err := n.rmaRange(c.group, from, size)
	if err != nil {
		return 0, err
	}
	target, err := n.rmaRange(c.group, to, size)
	if err != nil {
		return 0, err
	}
	if s == nil {
		return c.Put(index, source, size, target, rank)
	}
	word, err := n.rmaRange(c.group, s.Word, 8)
	if err != nil {
		return 0, err
	}
	signal := rma.Signal{Word: word, Value: s.Value}
	switch s.Op {
	case NCCL_NET_SIGNAL_OP_INC:
		signal.Do = rma.SignalInc
	case NCCL_NET_SIGNAL_OP_ADD:
		signal.Do = rma.SignalAdd
	default:
		return 0, fmt.Errorf("%w: signal operation %d; there are increment (%d) and add (%d)", errArgument, s.Op, NCCL_NET_SIGNAL_OP_INC, NCCL_NET_SIGNAL_OP_ADD)
	}
	return c.PutSignal(index, source, size, target, rank, &signal)
}

// RMAGet copies size bytes of a rank to this one.
func (n *Net) RMAGet(ctx Handle, index int, from RMARange, size uint64, to RMARange, rank int) (rma.Request, Result) {
	c, err := n.rmaSeries.find(ctx)
	if err != nil {
		return 0, n.result("iget", err)
	}
	source, err := n.rmaRange(c.group, from, size)
	if err != nil {
		return 0, n.failed(&c.group.failure, "iget", err)
	}
	target, err := n.rmaRange(c.group, to, size)
	if err != nil {
		return 0, n.failed(&c.group.failure, "iget", err)
	}
	q, err := c.Get(index, source, size, target, rank)
	return q, n.failed(&c.group.failure, "iget", err)
}

// RMAFlush returns a request that is done when the bytes of all earlier gets from a rank are here; zero if there are none.
func (n *Net) RMAFlush(ctx Handle, index, rank int) (rma.Request, Result) {
	c, err := n.rmaSeries.find(ctx)
	if err != nil {
		return 0, n.result("iflush", err)
	}
	q, err := c.Flush(index, rank)
	return q, n.failed(&c.group.failure, "iflush", err)
}

// RMATest reports whether a request of a group is done. After that the request does not exist any more.
func (n *Net) RMATest(group Handle, q rma.Request) (done bool, r Result) {
	g, err := n.rmaGroups.find(group)
	if err != nil {
		return false, n.result("test", err)
	}
	done, err = g.Test(q)
	return done, n.failed(&g.failure, "test", err)
}

// RMAProgress moves the operations of a context's group on.
func (n *Net) RMAProgress(ctx Handle) Result {
	c, err := n.rmaSeries.find(ctx)
	if err != nil {
		return n.result("rmaProgress", err)
	}
	c.Progress()
	return ncclSuccess
}

// RMALastError reports whether an operation of a context's group has failed, or a rank is lost.
func (n *Net) RMALastError(ctx Handle) (failed bool, r Result) {
	c, err := n.rmaSeries.find(ctx)
	if err != nil {
		return false, n.result("queryLastError", err)
	}
	err = c.group.Err()
	n.failed(&c.group.failure, "queryLastError", err)
	return err != nil, ncclSuccess
}

// rmaRange returns the range of a group's window. Without bytes it needs no window.
func (n *Net) rmaRange(g *rmaGroup, r RMARange, size uint64) (rma.Bytes, error) {
	if w := n.rmaWindows.get(r.Window); w != nil && w.group == g.handle {
		return rma.Bytes{Window: w.Window, Offset: r.Offset}, nil
	}
	if size == 0 {
		return rma.Bytes{}, nil
	}
	w, err := n.rmaWindows.find(r.Window)
	if err != nil {
		return rma.Bytes{}, err
	}
	return rma.Bytes{}, errForeignWindow(r.Window, w.group, g.handle)
}
