package onesided

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"ncclmesh/ibv"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/copier"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

const (
	// MaxOps is the number of operations that may be outstanding for each peer.
	MaxOps = 1024

	maxGets   = 64              // gets outstanding for each peer
	sendSlots = 64              // messages that may be on their way to a peer
	recvSlots = lane.Window / 2 // receives that are kept outstanding for messages
	tag       = 0x4f53          // of all messages
)

// Peer is a process into whose windows this one puts bytes, and which puts bytes into windows of this one; or this
// process itself.
type Peer struct {
	space *Space
	out   *conn.Sender // nil in the peer that is this process, as is in
	in    *conn.Receiver

	mu       sync.Mutex  // guards all fields below; never held while a goroutine waits
	lost     error       // why the peer is lost; nil while it is not
	isLost   atomic.Bool // lost is set; read without mu
	bindings map[*Window]*binding
	gpu      *binding // of a window in GPU memory, or nil

	ops    [MaxOps]op  // by number
	next   uint64      // number of the next operation
	toPost uint64      // number of the first operation that is not posted completely
	oldest uint64      // number of the first operation that is not done
	gets   int         // gets outstanding
	copied copier.Task // the last one of an operation of this process on itself

	mem       *ibv.Memory // of messages
	slots     []byte      // of messages to the peer
	sendMR    *lane.Region
	recvMR    *lane.Region
	sent      uint64 // messages posted
	delivered uint64 // of those, messages that were delivered
	report    func(owner uint64, err error)

	announced [256]signal // by number: signals for which a brief one may stand at the peer; a zero signal is none
	known     [256]signal // by number: signals for which a brief one of the peer's stands

	recvs    [recvSlots]*conn.Request // a ring of the receives outstanding
	received uint64                   // messages handled
	posted   uint64                   // receives posted
	came     uint64                   // what in.Progress returned last
	bufs     [1]conn.Buffer
	current  message     // the message that waits for flush
	flush    *conn.Flush // makes puts before current visible to the GPU; nil: no message waits
	change   change      // of a word in GPU memory, which current asks for

	answers      [maxGets]answer // a ring of the peer's gets
	asked        uint64          // gets that the peer has asked for
	answerPosted uint64          // of those, answered
}

// newPeer makes a peer without connections.
func newPeer(s *Space) *Peer {
	p := &Peer{space: s, next: 1, toPost: 1, oldest: 1, bindings: map[*Window]*binding{}}
	p.report = p.ended
	return p
}

// open gets the memory of messages and registers it. If it fails it closes the connections.
func (p *Peer) open() (err error) {
	if p.mem, err = ibv.Alloc((sendSlots + recvSlots) * messageSize); err != nil {
		return errors.Join(err, p.close())
	}
	p.slots = ibv.Carve[byte](p.mem, sendSlots*messageSize)
	receives := ibv.Carve[byte](p.mem, recvSlots*messageSize)
	p.sendMR, err = p.out.RegMR(lane.HostMemory, ibv.AddrOf(&p.slots[0]), uintptr(len(p.slots)))
	if err == nil {
		p.recvMR, err = p.in.RegMR(lane.HostMemory, ibv.AddrOf(&receives[0]), uintptr(len(receives)))
	}
	if err != nil {
		return errors.Join(err, p.close())
	}
	p.in.Standing()
	return nil
}

// String names the peer's node.
func (p *Peer) String() string {
	if p.out == nil {
		return "this process"
	}
	return p.out.Session.Name()
}

// close closes both connections and frees the memory.
func (p *Peer) close() error {
	p.lose(errClosed)
	p.mu.Lock()
	clear(p.bindings)
	p.gpu = nil
	mem := p.mem
	p.mem = nil
	p.mu.Unlock()
	if p.out == nil {
		return nil
	}
	if err := errors.Join(p.out.Close(), p.in.Close()); err != nil {
		return err // a device may still use the memory
	}
	if mem == nil {
		return nil
	}
	return mem.Free()
}

// Close closes the connections. Both processes do so after they have agreed, by a barrier or the like, that no
// operation is outstanding.
func (p *Peer) Close() error {
	if p.out == nil {
		return nil
	}
	p.space.mu.Lock()
	defer p.space.mu.Unlock()
	p.space.remove(p)
	return p.close()
}

// Err returns why the peer is lost, or nil while it is not. All operations of a lost peer are done, with this error.
func (p *Peer) Err() error {
	if !p.isLost.Load() { // calls that wait ask often
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// lose ends all operations with an error.
func (p *Peer) lose(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loseLocked(err)
}

// loseLocked is lose for a caller that has locked p.mu.
func (p *Peer) loseLocked(err error) {
	if p.lost != nil {
		return
	}
	p.lost = err
	p.isLost.Store(true)
	for n := p.oldest; n < p.next; n++ {
		if o := p.op(n); !o.done {
			o.err = err
			p.finish(o)
		}
	}
	for ; p.answerPosted < p.asked; p.answerPosted++ {
		p.answers[p.answerPosted%maxGets].release()
	}
	for w, b := range p.bindings {
		w.uses.Add(-b.answering)
		b.answering = 0
	}
	p.advance()
}

// Remote describes a window of a peer.
type Remote struct {
	ID   uint32
	Kind lane.MemoryKind
	Size uint64
}

// Window returns a peer's window. ok is false before this process has been told of the window, which takes a moment
// after its registration, and after its end.
func (p *Peer) Window(id uint32) (r Remote, ok bool) {
	if p.out == nil {
		w := (*p.space.windows.Load())[id]
		if w == nil || w.closing.Load() {
			return Remote{}, false
		}
		return Remote{w.id, w.kind, w.size}, true
	}
	w, _ := p.out.Window(id)
	if w == nil {
		return Remote{}, false
	}
	return Remote{w.ID, w.Kind, w.Size}, true
}

// Gone reports whether a peer's window has ended. It is false too before this process has been told of the window.
func (p *Peer) Gone(id uint32) bool {
	if p.out == nil {
		_, err := p.here(id)
		return errors.Is(err, conn.ErrWindowGone)
	}
	w, known := p.out.Window(id)
	return w == nil && known
}

// remote returns a peer's window, or the error of an operation on it.
func (p *Peer) remote(id uint32) (*conn.RemoteWindow, error) {
	w, known := p.out.Window(id)
	switch {
	case w != nil:
		return w, nil
	case known:
		return nil, fmt.Errorf("%w: window %d of %v", conn.ErrWindowGone, id, p)
	}
	return nil, fmt.Errorf("%w: %v has no window %d, or this process has not been notified of it yet", fault.ErrUsage, p, id)
}

// hold registers a window's memory with both connections. The memory of a lost peer is not needed.
//
// Preconditions: Space.mu is locked.
func (p *Peer) hold(w *Window) (*binding, error) {
	b := &binding{}
	if p.Err() != nil {
		return b, nil
	}
	var err error
	if b.source, err = w.in(p.out); err == nil {
		b.target, err = w.in(p.in)
	}
	if err != nil && !p.over() {
		return nil, errors.Join(err, p.release(b))
	}
	return b, nil
}

// bind lets the peer put into a window that hold has registered. A lost peer is left out.
//
// Preconditions: Space.mu is locked.
func (p *Peer) bind(w *Window, b *binding) (err error) {
	if b.source == nil {
		return nil
	}
	if b.target != nil {
		b.window, err = p.in.OpenWindow(w.id, b.target)
	}
	if err != nil && !p.over() {
		return errors.Join(err, p.release(b))
	}
	p.mu.Lock()
	p.bindings[w] = b
	if w.kind == lane.GPUMemory && b.window != nil {
		p.gpu = b
	}
	p.mu.Unlock()
	return nil
}

// over reports whether one of the connections has ended.
func (p *Peer) over() bool { return p.out.Ended() != nil || p.in.Ended() != nil }

// release deregisters what a binding holds.
func (p *Peer) release(b *binding) error {
	if err := p.in.DeregMR(b.target); err != nil {
		return err
	}
	b.target = nil
	if err := p.out.DeregMR(b.source); err != nil {
		return err
	}
	b.source = nil
	return nil
}

// bindingOf returns the binding of a window, or nil.
func (p *Peer) bindingOf(w *Window) *binding {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bindings[w]
}

// endWindow tells the peer of the end of a window.
func (p *Peer) endWindow(w *Window) {
	if b := p.bindingOf(w); b != nil && b.window != nil {
		b.window.End()
	}
}

// windowEnded reports whether the peer cannot put into a window any more and no flush uses it, or the peer is lost.
func (p *Peer) windowEnded(w *Window) bool {
	p.mu.Lock()
	b, lost := p.bindings[w], p.lost != nil
	flushing := p.flush != nil && p.gpu == b || p.change.window == w
	p.mu.Unlock()
	return b == nil || b.window == nil || lost || b.window.Ended() && !flushing
}

// unbind deregisters a window with both connections. If the peer may still put into it, its connection fails.
//
// Preconditions: Space.mu is locked.
func (p *Peer) unbind(w *Window) error {
	b := p.bindingOf(w)
	if b == nil {
		return nil
	}
	if err := p.release(b); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.bindings, w)
	if p.gpu == b {
		p.gpu = nil
		for other, o := range p.bindings {
			if other.kind == lane.GPUMemory && o.window != nil {
				p.gpu = o
			}
		}
	}
	return nil
}
