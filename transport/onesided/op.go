package onesided

import (
	"fmt"
	"sync/atomic"

	"ncclmesh/transport/conn"
	"ncclmesh/transport/copier"
	"ncclmesh/transport/fault"
)

// Op is the number of an operation of a peer, from 1. An operation that cannot begin now, because too many are
// outstanding, has number 0 and no error: the caller calls Space.Progress and tries again.
type Op uint64

// SignalOp says how a signal changes its word.
type SignalOp uint32

const (
	SignalSet SignalOp = 1 // to the value
	SignalAdd SignalOp = 2 // by the value
	SignalInc SignalOp = 3 // by 1
)

// Signal is a change of a word of a peer's window, at an offset that is a multiple of 8.
type Signal struct {
	Window uint32
	Do     SignalOp
	Offset uint64
	Value  uint64
}

// op is an operation.
type op struct {
	number  uint64
	done    bool
	err     error          // why it failed
	counter *atomic.Uint64 // counts that it is done; may be nil

	source   *Window            // of a put; of a get the window that the bytes go to
	from     uintptr            // address in it
	target   *conn.RemoteWindow // of a put
	to       uint64             // offset in it
	size     uint64             // bytes to put
	begun    uint64             // bytes of which the put has begun
	parts    int                // puts and messages that have begun and not ended, and the answer of a get
	tell     bool               // a message goes behind the bytes
	about    *conn.RemoteWindow // the window of the message
	msg      message
	flush    bool // done when all operations before it are
	answered bool // of a get: the answer has come

	task  copier.Task // of an operation of this process on itself: the copier's last task for it; 0: there is none
	local *Window     // then: the window whose word the processor changes in the end
}

// op returns the operation of a number, which is outstanding or among the last MaxOps.
func (p *Peer) op(n uint64) *op { return &p.ops[n%MaxOps] }

// Put copies size bytes from an offset of a window of this process to an offset of the peer's window dst. It is done
// when the bytes are in the peer's memory, and the source may be reused. Puts are not ordered among each other.
func (p *Peer) Put(dst uint32, dstOff uint64, src *Window, srcOff, size uint64) (Op, error) {
	return p.put(dst, dstOff, src, srcOff, size, nil)
}

// Signal changes a word of the peer's window, once. When the peer sees the change, it sees the bytes of all puts that
// began before, and all changes by signals that began before. The peer's Progress makes the change, so that any number
// of peers may share a word.
func (p *Peer) Signal(s Signal) (Op, error) { return p.put(0, 0, nil, 0, 0, &s) }

// PutSignal is a put and a signal behind it, as one operation.
func (p *Peer) PutSignal(dst uint32, dstOff uint64, src *Window, srcOff, size uint64, s Signal) (Op, error) {
	return p.put(dst, dstOff, src, srcOff, size, &s)
}

// put begins a put, a signal or both. src is nil if there is no put.
func (p *Peer) put(dst uint32, dstOff uint64, src *Window, srcOff, size uint64, s *Signal) (Op, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost != nil {
		return 0, p.lost
	}
	if p.out == nil {
		return p.putHere(dst, dstOff, src, srcOff, size, s)
	}
	var target, about *conn.RemoteWindow
	var err error
	if src != nil {
		if err = p.checkSource(src, srcOff, size); err != nil {
			return 0, err
		}
		if target, err = p.remote(dst); err != nil {
			return 0, err
		}
		if err = checkRange(dst, target.Size, dstOff, size); err != nil {
			return 0, fmt.Errorf("%w of %v", err, p)
		}
	}
	if s != nil {
		if about, err = p.remote(s.Window); err != nil {
			return 0, err
		}
		if err = s.check(about.Size, about); err != nil {
			return 0, fmt.Errorf("%w of %v", err, p)
		}
	}
	o := p.begin(src)
	if o == nil {
		return 0, nil
	}
	if src != nil {
		o.from, o.target, o.to, o.size = src.base+uintptr(srcOff), target, dstOff, size
	}
	if s != nil {
		o.tell, o.about = true, about
		m := &o.msg
		m.kind, m.window, m.offset, m.value, m.what = kindSignal, s.Window, s.Offset, s.Value, uint32(s.Do)
	}
	p.post()
	return Op(o.number), nil
}

// check returns an error if a signal cannot be meant for a window of size bytes.
func (s *Signal) check(size uint64, w *conn.RemoteWindow) error {
	if s.Do < SignalSet || s.Do > SignalInc {
		return fmt.Errorf("%w: signal operation %d; set (%d), add (%d) and increment (%d) are known", fault.ErrUsage, s.Do, SignalSet, SignalAdd, SignalInc)
	}
	return checkWord(w.ID, size, s.Offset)
}

// checkSource returns an error if an operation cannot use size bytes at an offset of a window of this process.
func (p *Peer) checkSource(w *Window, offset, size uint64) error {
	switch {
	case w.space != p.space:
		return fmt.Errorf("%w: window %d belongs to another space", fault.ErrUsage, w.id)
	case w.closing.Load() || p.out != nil && p.bindings[w] == nil:
		return fmt.Errorf("%w: window %d of this process has ended", fault.ErrUsage, w.id)
	}
	return checkRange(w.id, w.size, offset, size)
}

// full reports whether as many operations are outstanding as may be.
func (p *Peer) full() bool { return p.next-p.oldest == MaxOps }

// begin returns a new operation, which uses a window of this process or none. It returns nil if too many operations are
// outstanding.
func (p *Peer) begin(w *Window) *op {
	if p.full() {
		return nil
	}
	o := p.op(p.next)
	*o = op{}
	o.number, o.source = p.next, w
	p.next++
	if p.out == nil { // operations of the process on itself are not posted
		p.toPost = p.next
	}
	if w != nil {
		w.uses.Add(1)
	}
	return o
}

// Get copies size bytes from an offset of the peer's window src to an offset of a window of this process. It is done
// when the bytes are here.
func (p *Peer) Get(src uint32, srcOff uint64, dst *Window, dstOff, size uint64) (Op, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost != nil {
		return 0, p.lost
	}
	if p.out == nil {
		return p.getHere(src, srcOff, dst, dstOff, size)
	}
	if err := p.checkSource(dst, dstOff, size); err != nil {
		return 0, err
	}
	w, err := p.remote(src)
	if err == nil {
		err = checkRange(src, w.Size, srcOff, size)
	}
	if err != nil {
		return 0, err
	}
	o := p.begin(dst)
	if o == nil {
		return 0, nil
	}
	o.tell, o.about = true, w
	o.msg = message{kind: kindGet, window: src, offset: srcOff, value: o.number, size: size, toWindow: dst.id, toOffset: dstOff}
	o.parts = 1 // the answer
	p.post()
	return Op(o.number), nil
}

// Flush is done when all operations of the peer that began before it are done.
func (p *Peer) Flush() (Op, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost != nil {
		return 0, p.lost
	}
	o := p.begin(nil)
	if o == nil {
		return 0, nil
	}
	o.flush = true
	p.post()
	p.advance()
	return Op(o.number), nil
}

// Done reports whether an operation is done, and why it failed if it has. The reason is known until MaxOps later
// operations have begun. Done does not poll: Space.Progress does.
func (p *Peer) Done(n Op) (done bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case n == 0 || uint64(n) >= p.next:
		return false, fmt.Errorf("%w: operation %d of %v; %d have begun", fault.ErrUsage, n, p, p.next-1)
	case p.next-uint64(n) > MaxOps:
		return true, nil
	}
	o := p.op(uint64(n))
	return o.done, o.err
}

// Count adds 1 to a counter once an operation is done without an error; at once if it is already. An operation has one
// counter.
func (p *Peer) Count(n Op, counter *atomic.Uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n == 0 || uint64(n) >= p.next {
		return
	}
	o := p.op(uint64(n))
	switch {
	case p.next-uint64(n) > MaxOps || o.done && o.err == nil:
		counter.Add(1)
	case !o.done:
		o.counter = counter
	}
}

// Outstanding returns the number of operations that are not done.
func (p *Peer) Outstanding() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := p.oldest; k < p.next; k++ {
		if !p.op(k).done {
			n++
		}
	}
	return n
}

// finish marks an operation as done.
func (p *Peer) finish(o *op) {
	o.done = true
	if o.source != nil {
		o.source.uses.Add(-1)
		o.source = nil
	}
	if o.local != nil {
		o.local.uses.Add(-1)
		o.local = nil
	}
	if o.msg.kind == kindGet {
		p.gets -= o.asks()
	}
	if o.err == nil && o.counter != nil {
		o.counter.Add(1)
	}
	o.counter = nil
}

// asks returns 1 for a get whose request was posted, else 0.
func (o *op) asks() int {
	if o.msg.kind == kindGet && !o.tell {
		return 1
	}
	return 0
}

// advance moves oldest to the first operation that is not done. Flushes on the way are done.
func (p *Peer) advance() {
	for p.oldest < p.next {
		o := p.op(p.oldest)
		if o.flush && !o.done {
			p.finish(o)
		}
		if !o.done {
			return
		}
		p.oldest++
	}
}
