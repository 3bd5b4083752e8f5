package ncclnet

import (
	"errors"
	"fmt"
	"sync"

	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
)

// A comm is the common part of the two ends of a connection.
type comm struct {
	ctx      Handle
	handle   Handle
	memory   memory
	board    uintptr   // published for C; 0: none
	profiler *profiler // may be nil
	failure  failure
}

type sendComm struct {
	comm
	conn sender
}

type recvComm struct {
	comm
	conn receiver

	mu   sync.Mutex // only TryLock is used; if it fails, the caller returns "try again"
	bufs [MaxRecvs]conn.Buffer
}

// A region is memory that is registered with one connection.
type region struct {
	comm Handle
	mr   *lane.Region
}

// comm returns the connection of a handle, of either direction.
func (n *Net) comm(h Handle) (*comm, error) {
	if h.kind() == kindRecv {
		c, err := n.recvs.find(h)
		if err != nil {
			return nil, err
		}
		return &c.comm, nil
	}
	c, err := n.sends.find(h)
	if err != nil {
		return nil, err
	}
	return &c.comm, nil
}

// activate publishes the board of a connection that has its handle to C, and starts the profiler's watch.
func (n *Net) activate(c *comm) {
	if ctx := n.contexts.get(c.ctx); ctx != nil && ctx.profiler != nil {
		c.profiler = ctx.profiler
		c.memory.Watch(c.profiler.watch)
	}
	if n.process.host.PublishBoard == nil {
		return
	}
	if c.board = c.memory.Board(uint64(c.handle)); c.board != 0 {
		n.process.host.PublishBoard(c.handle, c.board)
	}
}

// RegMr registers memory for use with one connection.
func (n *Net) RegMr(comm Handle, addr, length uintptr, ptrType int) (Handle, Result) {
	h, err := n.register(comm, addr, length, ptrType, NCCL_PTR_CUDA, func(m memory) (*lane.Region, error) {
		return m.RegMR(memoryKind(ptrType), addr, length)
	})
	return h, n.result("regMr", err)
}

// RegMrDmaBuf registers the memory of a DMA-BUF descriptor for use with one connection. The descriptor is not used
// after the call.
func (n *Net) RegMrDmaBuf(comm Handle, addr, length uintptr, ptrType int, offset uint64, fd int) (Handle, Result) {
	h, err := n.register(comm, addr, length, ptrType, NCCL_PTR_DMABUF, func(m memory) (*lane.Region, error) {
		return m.RegDmaBufMR(memoryKind(ptrType), addr, length, offset, fd)
	})
	return h, n.result("regMrDmaBuf", err)
}

// memoryKind returns the kind of memory that NCCL's type of pointer stands for.
func memoryKind(ptrType int) lane.MemoryKind {
	if ptrType == NCCL_PTR_HOST {
		return lane.HostMemory
	}
	return lane.GPUMemory
}

// register registers memory. bit is the property that GPU memory needs for this call.
func (n *Net) register(h Handle, addr, length uintptr, ptrType, bit int,
	reg func(memory) (*lane.Region, error),
) (Handle, error) {
	c, err := n.comm(h)
	if err != nil {
		return 0, err
	}
	if err := n.checkType(ptrType, bit); err != nil {
		return 0, err
	}
	if addr == 0 && length > 0 || addr+length < addr {
		return 0, fmt.Errorf("%w: %d bytes of memory at %#x: the address is NULL, or the range wraps around", errArgument, length, addr)
	}
	mr, err := reg(c.memory)
	if err != nil {
		return 0, err
	}
	mh, err := n.regions.put(&region{h, mr})
	if err != nil {
		_ = c.memory.DeregMR(mr)
	}
	return mh, err
}

// DeregMr undoes a registration. After it has returned, no device accesses the memory any more. It accepts NULL, and an
// mr that was deregistered before, alone or with its connection: see table.close.
func (n *Net) DeregMr(comm, mr Handle) Result {
	return n.result("deregMr", n.deregister(comm, mr))
}

func (n *Net) deregister(h, mr Handle) error {
	if r := n.regions.get(mr); r != nil && r.comm != h {
		return errForeignRegion(mr, r.comm, h)
	}
	r, err := n.regions.close(mr)
	if r == nil {
		return err
	}
	c, err := n.comm(h)
	if err != nil { // the connection is being closed, which releases the region
		return err
	}
	return c.memory.DeregMR(r.mr)
}

// region returns the memory of mr if h may use it. A message without bytes needs none.
func (n *Net) region(h, mr Handle, size int) (*lane.Region, error) {
	if r := n.regions.get(mr); r != nil && r.comm == h {
		return r.mr, nil
	}
	if mr == 0 && size == 0 {
		return nil, nil
	}
	r, err := n.regions.find(mr)
	if err != nil {
		return nil, err
	}
	return nil, errForeignRegion(mr, r.comm, h)
}

func errForeignRegion(mr, owner, user Handle) error {
	return fmt.Errorf("%w: mhandle %s was registered with connection %s, not %s", errArgument, mr, owner, user)
}

// CloseSend closes the sender of a connection. It accepts NULL, and a connection that was closed before: see
// table.close.
func (n *Net) CloseSend(h Handle) Result {
	c, err := n.sends.close(h)
	if c != nil {
		err = n.closeComm(&c.comm)
	}
	return n.result("closeSend", err)
}

// CloseRecv closes the receiver of a connection. It accepts NULL, and a connection that was closed before: see
// table.close.
func (n *Net) CloseRecv(h Handle) Result {
	c, err := n.recvs.close(h)
	if c != nil {
		err = n.closeComm(&c.comm)
	}
	return n.result("closeRecv", err)
}

// closeComm closes c and deregisters the memory that is still registered with it, because NCCL before 2.29 does not
// deregister the user's buffers.
func (n *Net) closeComm(c *comm) error {
	if c.board != 0 {
		n.process.host.UnpublishBoard(c.handle, c.board)
	}
	var errs []error
	for _, r := range n.regions.take(func(r *region) bool { return r.comm == c.handle }) {
		errs = append(errs, c.memory.DeregMR(r.mr))
	}
	return errors.Join(append(errs, c.memory.Close())...)
}
