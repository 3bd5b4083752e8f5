package onesided

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"ncclmesh/transport/conn"
	"ncclmesh/transport/copier"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/turn"
)

// Space is this process's windows and peers.
type Space struct {
	self    *Peer
	peers   atomic.Pointer[[]*Peer] // those of Connect; replaced, never changed
	windows atomic.Pointer[map[uint32]*Window]
	last    atomic.Uint32  // number of the last window
	mostPut uint64         // bytes of one put of package conn; a longer one of this package is cut
	copier  *copier.Copier // for windows in GPU memory; nil: it has none, or they hold no words of signals

	mu  turn.Turn // held by calls that register or close, which may wait for devices
	gpu bool      // the space has had a window in GPU memory, and a copier; guarded by mu
}

// New makes a space without windows and peers.
func New() *Space {
	s := &Space{mostPut: conn.MaxPut}
	s.peers.Store(new([]*Peer))
	s.windows.Store(&map[uint32]*Window{})
	s.self = newPeer(s)
	return s
}

// UseCopier has a copier change words of signals in GPU memory, and copy for operations of the process on itself. It
// must be called before the first Register. Without it a space's windows in GPU memory hold no words of signals.
func (s *Space) UseCopier(c *copier.Copier) { s.copier = c }

// Self returns the peer that stands for this process. Its operations copy within the process: at once in host memory,
// and by adapters in GPU memory.
func (s *Space) Self() *Peer { return s.self }

// Register makes memory a window. Every peer of the space, present or future, may write into it and read from it, and
// this process may put from it and get into it. The memory lies outside the Go heap, and stays the caller's: it must
// stay mapped until Window.Close has returned true.
//
// Windows are numbered from 1 in the order of their registration. Processes that register the same windows in the same
// order know the windows of each other by the same numbers. A registration that fails takes no number.
func (s *Space) Register(kind lane.MemoryKind, addr, length uintptr) (*Window, error) {
	return s.register(&Window{kind: kind, base: addr, size: uint64(length), in: func(c memory) (*lane.Region, error) {
		return c.RegMR(kind, addr, length)
	}})
}

// RegisterDMABuf makes memory a window that devices find by a DMA-BUF, in which it begins at offset: see
// [lane.KeepDMABuf]. The caller may close the descriptor after the call.
func (s *Space) RegisterDMABuf(kind lane.MemoryKind, addr, length uintptr, offset uint64, fd int) (*Window, error) {
	w := &Window{kind: kind, base: addr, size: uint64(length), buf: lane.KeepDMABuf(fd, addr, offset)}
	defer w.buf.Forget()
	w.in = func(c memory) (*lane.Region, error) {
		return c.RegDmaBufMR(kind, addr, length, offset, w.buf.FD)
	}
	if _, err := s.register(w); err != nil {
		return nil, errors.Join(err, w.buf.Close())
	}
	return w, nil
}

// memory is where a connection's memory is registered.
type memory interface {
	RegMR(kind lane.MemoryKind, addr, length uintptr) (*lane.Region, error)
	RegDmaBufMR(kind lane.MemoryKind, addr, length uintptr, offset uint64, fd int) (*lane.Region, error)
}

// register gives a window a number, and binds it to all peers.
func (s *Space) register(w *Window) (*Window, error) {
	if w.size == 0 || w.base == 0 || uint64(w.base)+w.size < w.size {
		return nil, fmt.Errorf("%w: a window of %d bytes at %#x: it has no bytes, or its address is 0, or the range wraps around", fault.ErrUsage, w.size, w.base)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.Load() == lane.MaxWindow {
		return nil, fmt.Errorf("%w: a space has at most %d windows in its life", fault.ErrUsage, lane.MaxWindow)
	}
	w.space = s
	if err := w.registerLocally(); err != nil {
		return nil, err
	}
	peers := *s.peers.Load()
	held := make([]*binding, len(peers))
	for i, p := range peers { // what may fail comes before any peer has heard of the window
		b, err := p.hold(w)
		if err != nil {
			return nil, errors.Join(err, releaseAll(peers[:i], held[:i]), w.deregisterLocally())
		}
		held[i] = b
	}
	w.id = s.last.Add(1)
	s.keep(w) // before a peer knows of the window
	for i, p := range peers {
		if err := p.bind(w, held[i]); err != nil {
			return nil, errors.Join(err, releaseAll(peers[i+1:], held[i+1:]), w.abandon())
		}
	}
	return w, nil
}

// releaseAll deregisters what peers hold of a window that none of them was told of.
func releaseAll(peers []*Peer, held []*binding) error {
	var errs []error
	for i, p := range peers {
		errs = append(errs, p.release(held[i]))
	}
	return errors.Join(errs...)
}

// keep adds a window to those of the space.
//
// Preconditions: s.mu is locked.
func (s *Space) keep(w *Window) {
	all := maps.Clone(*s.windows.Load())
	all[w.id] = w
	s.windows.Store(&all)
}

// forget removes a window from those of the space.
//
// Preconditions: s.mu is locked.
func (s *Space) forget(w *Window) {
	all := maps.Clone(*s.windows.Load())
	delete(all, w.id)
	s.windows.Store(&all)
}

// Connect makes a peer of two connections with one process, one each way, that carry nothing else. The process calls
// Connect for its ends of them too. The peer owns both connections.
func (s *Space) Connect(out *conn.Sender, in *conn.Receiver) (*Peer, error) {
	p := newPeer(s)
	p.out, p.in = out, in
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := p.open(); err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(*s.windows.Load())) {
		w := (*s.windows.Load())[id]
		if w.closing.Load() {
			continue
		}
		b, err := p.hold(w)
		if err == nil {
			err = p.bind(w, b)
		}
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	all := append(slices.Clone(*s.peers.Load()), p)
	s.peers.Store(&all)
	return p, nil
}

// remove removes a peer from those of the space.
//
// Preconditions: s.mu is locked.
func (s *Space) remove(p *Peer) {
	all := slices.DeleteFunc(slices.Clone(*s.peers.Load()), func(o *Peer) bool { return o == p })
	s.peers.Store(&all)
}

// Progress moves the operations of all peers on, acts on signals that have arrived, and answers gets. It reports
// whether something moved.
func (s *Space) Progress() (moved bool) {
	if s.copier != nil {
		moved = s.copier.Poll()
		moved = s.self.progressHere() || moved
	}
	for _, p := range *s.peers.Load() {
		moved = p.progress() || moved
	}
	return moved
}

// Close ends all peers and windows at once.
func (s *Space) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, p := range *s.peers.Load() {
		errs = append(errs, p.close())
	}
	s.peers.Store(new([]*Peer))
	s.self.lose(errClosed)
	for _, w := range *s.windows.Load() {
		errs = append(errs, w.abandon())
	}
	return errors.Join(errs...)
}

// errClosed is the error of operations of a peer that was closed.
var errClosed = fmt.Errorf("%w: the peer was closed", fault.ErrUsage)
