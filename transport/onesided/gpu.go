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
)

// This file handles what the processor cannot do with windows in GPU memory, and a copier does: changing and loading words of
// signals, and copying for operations of the process on itself.

// change is a change of a word in GPU memory that a peer's signal asks for. The messages behind the signal wait until
// it is done.
type change struct {
	window *Window     // nil: none is under way
	task   copier.Task // 0: it has not begun
}

// changed begins the change that the current message asks for, and reports whether it is done.
func (p *Peer) changed() (done bool, err error) {
	w, m := p.change.window, &p.current
	c := w.space.copier
	if p.change.task == 0 {
		if w.closing.Load() { // a signal into a window that has ended changes nothing
			p.change = change{}
			return true, nil
		}
		p.change.task, err = c.Change(w.changeOf(SignalOp(m.what), m.offset, m.value))
		if p.change.task == 0 || err != nil {
			return false, err
		}
	}
	if done, err = c.Done(p.change.task); done || err != nil {
		p.change = change{}
	}
	return done, err
}

// changeOf returns what the copier does for a signal.
func (w *Window) changeOf(do SignalOp, offset, value uint64) copier.Change {
	h := copier.Change{Word: w.place(offset), Value: value, Set: do == SignalSet}
	if do == SignalInc {
		h.Value = 1
	}
	return h
}

// place returns the memory at an offset.
func (w *Window) place(offset uint64) copier.Place {
	return copier.Place{Region: w.local.Load(), Addr: w.base + uintptr(offset)}
}

// registerLocally registers the window with the space's copier, if the space has one. Windows in host memory are registered only
// once the space has one in GPU memory, because the processor does all copies before; the first one brings those that
// are there already.
//
// Preconditions: Space.mu is locked.
func (w *Window) registerLocally() error {
	s := w.space
	switch {
	case s.copier == nil || w.kind == lane.HostMemory && !s.gpu:
		return nil
	case w.kind == lane.HostMemory:
		return w.registerWith(s.copier)
	}
	if err := w.registerWith(s.copier); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(*s.windows.Load())) {
		other := (*s.windows.Load())[id]
		if other.local.Load() != nil || other.closing.Load() {
			continue
		}
		if err := other.registerWith(s.copier); err != nil {
			return errors.Join(err, w.deregisterLocally())
		}
	}
	s.gpu = true
	return nil
}

// registerWith registers the window with a copier.
func (w *Window) registerWith(c *copier.Copier) error {
	r, err := c.Register(lane.Memory{Kind: w.kind, Addr: w.base, Length: uintptr(w.size), DMABuf: w.buf})
	if err == nil {
		w.local.Store(r)
	}
	return err
}

// deregisterLocally undoes registerLocally. It waits for copies that are under way.
func (w *Window) deregisterLocally() error {
	r := w.local.Load()
	if r == nil {
		return nil
	}
	return r.Close()
}

// Load is the number of a load of a word, from 1.
type Load uint64

// Load begins to read the word at an offset, which is a multiple of 8 in a window of GPU memory, by an adapter. The value is stored in
// into before the load is done: see [Space.Loaded]. The bytes of all puts before a signal that has made the value are visible to the GPU.
// It returns 0 if it cannot begin now: the caller then calls Space.Progress and tries again.
func (w *Window) Load(offset uint64, into *atomic.Uint64) (Load, error) {
	if err := checkWord(w.id, w.size, offset); err != nil {
		return 0, err
	}
	switch {
	case w.closing.Load():
		return 0, fmt.Errorf("%w: window %d of this process has ended", fault.ErrUsage, w.id)
	case w.local.Load() == nil:
		return 0, fmt.Errorf("%w: a word of %v: the space has no copier that could load it", fault.ErrUsage, w)
	}
	t, err := w.space.copier.Load(w.place(offset), into)
	return Load(t), err
}

// Loaded reports whether a load has ended, and why it failed if it has.
func (s *Space) Loaded(n Load) (bool, error) { return s.copier.Done(copier.Task(n)) }

// byCopier reports whether a copier must copy between two windows of this process, or change a word of one. Each may be
// nil.
func byCopier(to, from, about *Window) bool {
	for _, w := range []*Window{to, from, about} {
		if w != nil && w.kind != lane.HostMemory {
			return true
		}
	}
	return false
}

// copyHere begins an operation within the process that a copier carries out: a copy of size bytes if to is not nil, and
// then a signal about a window if that is not nil. It returns 0 if the copier cannot begin now.
//
// Preconditions: p is not full.
func (p *Peer) copyHere(to *Window, toOff uint64, from *Window, fromOff, size uint64, about *Window, s *Signal) (Op, error) {
	for _, w := range []*Window{to, from, about} {
		if w != nil && w.local.Load() == nil {
			return 0, fmt.Errorf("%w: the processor cannot copy or change %v, and the space has no copier", fault.ErrUsage, w)
		}
	}
	var then *copier.Change
	if about != nil && about.kind != lane.HostMemory {
		h := about.changeOf(s.Do, s.Offset, s.Value)
		then, about = &h, nil
	}
	var task copier.Task
	var err error
	if c := p.space.copier; to != nil {
		task, err = c.Copy(to.place(toOff), from.place(fromOff), size, then)
	} else {
		task, err = c.Change(*then)
	}
	if task == 0 || err != nil {
		return 0, err
	}
	p.copied = task
	return p.beginHere(from, about, s), nil
}

// beginHere returns a new operation, which is done when the copier's last task is. It uses a window, or none. When it is
// done, the processor changes the word of a signal about a window of host memory, if that is not nil.
//
// Preconditions: p is not full.
func (p *Peer) beginHere(from, about *Window, s *Signal) Op {
	o := p.begin(from)
	o.task = p.copied
	if about != nil {
		about.uses.Add(1)
		o.local, o.msg = about, message{offset: s.Offset, value: s.Value, what: uint32(s.Do)}
	}
	return Op(o.number)
}

// dropChanges makes operations of this process on itself fail that are to change a word of a window, which ends at once.
func (p *Peer) dropChanges(w *Window) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := p.oldest; n < p.next; n++ {
		if o := p.op(n); !o.done && o.local == w {
			o.err = fmt.Errorf("%w: window %d of this process", conn.ErrWindowGone, w.id)
			p.finish(o)
		}
	}
	p.advance()
}

// progressHere finishes operations of this process on itself whose copies are done.
func (p *Peer) progressHere() (moved bool) {
	if !p.mu.TryLock() {
		return false
	}
	defer p.mu.Unlock()
	for n := p.oldest; n < p.next; n++ {
		o := p.op(n)
		if o.done || o.task == 0 {
			continue
		}
		done, err := p.space.copier.Done(o.task)
		if !done && err == nil {
			break // tasks are done in their order
		}
		if o.err = err; err == nil && o.local != nil {
			o.local.change(SignalOp(o.msg.what), o.msg.offset, o.msg.value)
		}
		p.finish(o)
		moved = true
	}
	p.advance()
	return moved
}
