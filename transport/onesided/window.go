package onesided

import (
	"errors"
	"fmt"
	"sync/atomic"

	"ncclmesh/transport/conn"
	"ncclmesh/transport/copier"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// Window is memory of this process.
type Window struct {
	space *Space
	id    uint32
	kind  lane.MemoryKind
	base  uintptr
	size  uint64
	in    func(memory) (*lane.Region, error) // registers the memory with a connection
	buf   *lane.DMABuf                       // nil if devices find the memory by its address
	local atomic.Pointer[copier.Region]      // for the space's copier; nil: not registered with one

	closing atomic.Bool  // no operation may begin to use it
	uses    atomic.Int64 // operations that use it: from it, into it by a get, or by a change of its word after a copy
	told    bool         // peers were told of the end; guarded by Space.mu, as is ended
	ended   bool
}

// A binding is what a peer's connections hold of a window.
type binding struct {
	source *lane.Region // at the sender
	target *lane.Region // at the receiver
	window *conn.Window // nil if the peer was lost before

	answering int64 // puts of answers from the window that have not ended; guarded by the peer's mutex
}

// ID returns the number by which peers know the window.
func (w *Window) ID() uint32 { return w.id }

// Kind returns what memory the window is.
func (w *Window) Kind() lane.MemoryKind { return w.kind }

// Base returns the address of the window's first byte, Size its size in bytes.
func (w *Window) Base() uintptr { return w.base }
func (w *Window) Size() uint64  { return w.size }

// String names the window for errors.
func (w *Window) String() string {
	return fmt.Sprintf("window %d of this process, %d bytes of %v", w.id, w.size, w.kind)
}

// checkWord returns an error unless there is a word for signals at an offset of a window.
func checkWord(id uint32, size, offset uint64) error {
	if offset%8 != 0 || size < 8 || offset > size-8 {
		return fmt.Errorf("%w: a signal word at offset %d of window %d, which has %d bytes; a multiple of 8 inside the window is needed", fault.ErrUsage, offset, id, size)
	}
	return nil
}

// checkRange returns an error unless size bytes at an offset lie inside a window.
func checkRange(id uint32, all, offset, size uint64) error {
	if offset > all || size > all-offset {
		return fmt.Errorf("%w: %d bytes at offset %d of window %d, which has %d bytes", fault.ErrUsage, size, offset, id, all)
	}
	return nil
}

// Word returns the word at an offset, which is a multiple of 8 in a window of host memory. After a load that finds a
// value which a signal has made, the bytes of all puts before that signal are visible.
func (w *Window) Word(offset uint64) (*atomic.Uint64, error) {
	if err := checkWord(w.id, w.size, offset); err != nil {
		return nil, err
	}
	if w.kind != lane.HostMemory {
		return nil, fmt.Errorf("%w: a word of %v, which the processor cannot load: see Window.Load", fault.ErrUsage, w)
	}
	return wordAt(w.base + uintptr(offset)), nil
}

// Close begins to end the window, and reports whether it has ended: the caller calls it, and Space.Progress, until it
// has. No operation may begin to use the window once Close was called. Puts of peers that are under way are completed;
// peers that begin one later get [conn.ErrWindowGone]. Once Close has returned true, nothing touches the memory. Close
// may wait for devices.
func (w *Window) Close() (ended bool, err error) {
	w.closing.Store(true)
	w.space.mu.Lock()
	defer w.space.mu.Unlock()
	switch {
	case w.ended:
		return true, nil
	case !w.told:
		w.told = true
		for _, p := range *w.space.peers.Load() {
			p.endWindow(w)
		}
	}
	ended = true
	for _, p := range append(*w.space.peers.Load(), w.space.self) {
		ended = p.windowEnded(w) && ended // which also waits for calls that do not know yet that the window is closing
	}
	if !ended || w.uses.Load() > 0 {
		return false, nil
	}
	return true, w.abandon()
}

// Abandon ends the window at once. Connections of peers that have not agreed to its end fail. It may wait for lanes to
// stop.
func (w *Window) Abandon() error {
	w.closing.Store(true)
	w.space.mu.Lock()
	defer w.space.mu.Unlock()
	return w.abandon()
}

// abandon deregisters the window with all peers.
//
// Preconditions: Space.mu is locked.
func (w *Window) abandon() error {
	if w.ended {
		return nil
	}
	w.closing.Store(true)
	w.space.self.dropChanges(w)
	var errs []error
	for _, p := range *w.space.peers.Load() {
		errs = append(errs, p.unbind(w))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := w.deregisterLocally(); err != nil {
		return err
	}
	w.ended = true
	w.space.forget(w)
	if w.buf != nil {
		return w.buf.Close()
	}
	return nil
}
