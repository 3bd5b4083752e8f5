package ncclnet

import (
	"errors"
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/ncclnet/rma"
)

// RMAListen returns a listener, and its handle for the other ranks.
func (n *Net) RMAListen(ctx Handle, dev int) (Handle, [HandleSize]byte, Result) {
	h, wire, err := n.rmaListen(ctx, dev)
	return h, wire, n.result("RMA listen", err)
}

func (n *Net) rmaListen(ctx Handle, dev int) (Handle, [HandleSize]byte, error) {
	var none [HandleSize]byte
	c, err := n.rmaContext(ctx)
	if err != nil {
		return 0, none, err
	}
	if err := checkDevice(dev, c.devices); err != nil {
		return 0, none, err
	}
	l, err := c.net.Listen()
	if err != nil {
		return 0, none, err
	}
	h, err := n.rmaListens.put(&rmaListen{ctx, l})
	if err != nil {
		return 0, none, errors.Join(err, l.Close())
	}
	return h, l.Handle(), nil
}

// RMACloseListen closes a listener. It accepts NULL, and a listener that was closed before: see table.close.
func (n *Net) RMACloseListen(h Handle) Result {
	l, err := n.rmaListens.close(h)
	if l != nil {
		err = l.listener.Close()
	}
	return n.result("RMA closeListen", err)
}

// RMAConnect connects the ranks whose handles these are. It waits for all of them. The context is the listener's, because NCCL 2.30.7
// passes another to connect.
func (n *Net) RMAConnect(wires []*[HandleSize]byte, rank int, listen Handle) (Handle, Result) {
	h, err := n.rmaConnect(wires, rank, listen)
	return h, n.result("RMA connect", err)
}

func (n *Net) rmaConnect(wires []*[HandleSize]byte, rank int, listen Handle) (Handle, error) {
	l, err := n.rmaListens.find(listen)
	if err != nil {
		return 0, err
	}
	c, err := n.rmaContext(l.ctx)
	if err != nil {
		return 0, err
	}
	handles := make([]handshake.Handle, len(wires))
	for i, w := range wires {
		if w == nil {
			return 0, fmt.Errorf("%w: the handle of rank %d is NULL", errArgument, i)
		}
		if handles[i], err = handshake.DecodeHandle(w); err != nil {
			return 0, fmt.Errorf("%w: the handle of rank %d: %w", errArgument, i, err)
		}
	}
	group, err := rma.Connect(rma.Config{
		Transport: c.net, Listener: l.listener, Handles: handles, Rank: rank, Clock: n.process.host.Machine.Clock, Log: n.log,
	})
	if err != nil {
		return 0, err
	}
	g := &rmaGroup{Group: group, ctx: l.ctx, failure: failure{warned: true}} // the NCCLs with an RMA interface lose no errors
	if g.handle, err = n.rmaGroups.put(g); err != nil {
		return 0, errors.Join(err, group.Close())
	}
	n.log.Info(fmt.Sprintf("one-sided communication of rank %d with %d ranks goes over the mesh", rank, len(wires)))
	return g.handle, nil
}

// RMACloseColl closes a group. It accepts NULL, and a group that was closed before: see table.close.
func (n *Net) RMACloseColl(h Handle) Result {
	g, err := n.rmaGroups.close(h)
	if g != nil {
		err = n.closeGroup(g)
	}
	return n.result("RMA closeColl", err)
}

// closeGroup closes a group, with the contexts and windows that are still open in it.
func (n *Net) closeGroup(g *rmaGroup) error {
	n.rmaSeries.take(func(s *rmaSeries) bool { return s.group == g })
	n.rmaWindows.take(func(w *rmaWindow) bool { return w.group == g.handle })
	return g.Close()
}

// RMACreateContext makes a context of a group with a number of independent series.
func (n *Net) RMACreateContext(group Handle, series int) (Handle, Result) {
	h, err := n.rmaCreateContext(group, series)
	return h, n.result("RMA createContext", err)
}

func (n *Net) rmaCreateContext(group Handle, series int) (Handle, error) {
	g, err := n.rmaGroups.find(group)
	if err != nil {
		return 0, err
	}
	c, err := g.NewContext(series)
	if err != nil {
		return 0, err
	}
	return n.rmaSeries.put(&rmaSeries{c, g})
}

// RMADestroyContext destroys a context of a group. It accepts NULL, and a context that was destroyed before: see table.close.
func (n *Net) RMADestroyContext(h Handle) Result {
	s, err := n.rmaSeries.close(h)
	if s != nil {
		s.Destroy()
	}
	return n.result("RMA destroyContext", err)
}

// RMARegister registers memory as a window of a group.
func (n *Net) RMARegister(group Handle, addr, length uintptr, ptrType int) (Handle, Result) {
	h, err := n.rmaRegister(group, addr, length, ptrType, NCCL_PTR_CUDA, func(g *rmaGroup) (*rma.Window, error) {
		return g.Register(memoryKind(ptrType), addr, length)
	})
	return h, n.result("regMrSym", err)
}

// RMARegisterDmaBuf registers the memory of a DMA-BUF descriptor as a window of a group. The descriptor is not used after the call.
func (n *Net) RMARegisterDmaBuf(group Handle, addr, length uintptr, ptrType int, offset uint64, fd int) (Handle, Result) {
	h, err := n.rmaRegister(group, addr, length, ptrType, NCCL_PTR_DMABUF, func(g *rmaGroup) (*rma.Window, error) {
		return g.RegisterDMABuf(memoryKind(ptrType), addr, length, offset, fd)
	})
	return h, n.result("regMrSymDmaBuf", err)
}

// rmaRegister registers a window. bit is the property that GPU memory needs for this call.
func (n *Net) rmaRegister(group Handle, addr, length uintptr, ptrType, bit int, register func(*rmaGroup) (*rma.Window, error)) (Handle, error) {
	g, err := n.rmaGroups.find(group)
	if err != nil {
		return 0, err
	}
	if err := n.checkType(ptrType, bit); err != nil {
		return 0, err
	}
	w, err := register(g)
	if err != nil {
		return 0, err
	}
	h, err := n.rmaWindows.put(&rmaWindow{w, group})
	if err != nil {
		return 0, errors.Join(err, g.Deregister(w))
	}
	return h, nil
}

// RMADeregister ends a window. It accepts NULL, and a window that was deregistered before, alone or with its group: see table.close.
func (n *Net) RMADeregister(group, window Handle) Result {
	return n.result("deregMrSym", n.rmaDeregister(group, window))
}

func (n *Net) rmaDeregister(group, window Handle) error {
	if w := n.rmaWindows.get(window); w != nil && w.group != group {
		return errForeignWindow(window, w.group, group)
	}
	w, err := n.rmaWindows.close(window)
	if w == nil {
		return err
	}
	g, err := n.rmaGroups.find(group)
	if err != nil { // the group is being closed, which ends the window
		return err
	}
	return g.Deregister(w.Window)
}

func errForeignWindow(window, owner, user Handle) error {
	return fmt.Errorf("%w: mhandle %s was registered with collComm %s, not %s", errArgument, window, owner, user)
}
