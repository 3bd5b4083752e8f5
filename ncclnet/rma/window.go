package rma

import (
	"fmt"
	"sync/atomic"
	"time"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/onesided"
)

// deregisterWait is how long Deregister waits for the other ranks to agree that they do not write into the window any more. A rank
// that is lost has agreed. After that time the connections with the rest fail.
const deregisterWait = 30 * time.Second

// A Window is memory that all ranks of a group have registered: a number stands for the memory of each.
type Window struct {
	w      *onesided.Window
	ending atomic.Bool
	known  []bool // by rank: the rank has told of its part; guarded by the mutex of its link
}

// Register registers memory of this rank. All ranks register their windows in the same order; a call that fails does not count, so that
// a rank may try again in another way. The call does not wait for the other ranks: operations do. The memory must not be used for
// anything else before Deregister has returned.
func (g *Group) Register(kind lane.MemoryKind, addr, length uintptr) (*Window, error) {
	return g.window(g.space.Register(kind, addr, length))
}

// RegisterDMABuf registers memory that a DMA-BUF descriptor stands for, in which it begins at offset. The caller may close the
// descriptor after the call.
func (g *Group) RegisterDMABuf(kind lane.MemoryKind, addr, length uintptr, offset uint64, fd int) (*Window, error) {
	return g.window(g.space.RegisterDMABuf(kind, addr, length, offset, fd))
}

func (g *Group) window(w *onesided.Window, err error) (*Window, error) {
	if err != nil {
		return nil, err
	}
	return &Window{w: w, known: make([]bool, len(g.links))}, nil
}

// Deregister ends a window, for this rank alone. When it has returned, no device touches the memory. Operations of this rank that have
// not begun fail; those of other ranks fail there. It waits until what is under way is over.
func (g *Group) Deregister(w *Window) error {
	if w.ending.Swap(true) {
		return fmt.Errorf("%w: window %d was deregistered before", fault.ErrUsage, w.w.ID())
	}
	for i := range g.links {
		g.links[i].abandon(w)
	}
	for begun := time.Now(); ; g.clock.Sleep(shortPause) {
		ended, err := w.w.Close()
		switch {
		case ended || err != nil:
			return err
		case time.Since(begun) > deregisterWait:
			g.log.Warn(fmt.Sprintf("a window of one-sided communication was deregistered, and another rank has not answered for %.0f s: its connection ends", deregisterWait.Seconds()))
			return w.w.Abandon()
		}
		g.progress()
	}
}
