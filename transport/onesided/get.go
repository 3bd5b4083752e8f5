package onesided

import (
	"errors"
	"fmt"

	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
)

// answer is a get of the peer's, which this process answers.
type answer struct {
	request message
	checked bool
	source  *Window            // nil if it cannot be read, and once the answer was posted
	target  *conn.RemoteWindow // the peer's
	begun   uint64             // bytes of which the put has begun
	status  uint32             // of the answer
}

// release ends the answer's use of its window.
func (a *answer) release() {
	if a.source != nil {
		a.source.uses.Add(-1)
		a.source = nil
	}
}

// ask notes a get of the peer's.
func (p *Peer) ask(m *message) error {
	if p.asked-p.answerPosted == maxGets {
		return fmt.Errorf("%w: %v: more than %d gets are outstanding", fault.ErrProtocol, p.in, maxGets)
	}
	p.answers[p.asked%maxGets] = answer{request: *m}
	p.asked++
	return nil
}

// answer answers gets of the peer's, in their order, as far as the connection takes it.
func (p *Peer) answer() {
	for ; p.answerPosted < p.asked; p.answerPosted++ {
		a := &p.answers[p.answerPosted%maxGets]
		if !a.checked && !p.checkAnswer(a) {
			return
		}
		for a.status == gotBytes && a.begun < a.request.size {
			b, n := p.bindings[a.source], min(a.request.size-a.begun, p.space.mostPut)
			if b == nil {
				a.status = gotNoSource
				break
			}
			ok, err := p.out.Put(&conn.Put{
				Window: a.target, Offset: a.request.toOffset + a.begun, Addr: a.source.base + uintptr(a.request.offset+a.begun), Size: int(n),
				Region: b.source, Owner: owner(ownerAnswer, uint64(a.source.id)),
			})
			switch {
			case ok:
				b.answering++
				a.source.uses.Add(1)
				a.begun += n
			case errors.Is(err, conn.ErrWindowGone):
				a.status = gotNoTarget
			default:
				return
			}
		}
		m := message{kind: kindGot, value: a.request.value, what: a.status}
		if ok, _ := p.tell(&m, false, owner(ownerAnswered, p.answerPosted)); !ok {
			return
		}
		a.release()
	}
}

// answerEnded notes that a put of an answer, from a window, has ended. The peer's window may have ended before, as the
// peer knows.
func (p *Peer) answerEnded(id uint32) {
	if w := (*p.space.windows.Load())[id]; w != nil {
		if b := p.bindings[w]; b != nil && b.answering > 0 {
			b.answering--
			w.uses.Add(-1)
		}
	}
}

// checkAnswer finds the windows of a get. It returns false if this process has not been told of the peer's window yet.
func (p *Peer) checkAnswer(a *answer) bool {
	m := &a.request
	target, known := p.out.Window(m.toWindow)
	if target == nil && !known {
		return false
	}
	w := (*p.space.windows.Load())[m.window]
	switch {
	case w == nil || w.closing.Load() || p.bindings[w] == nil:
		a.status = gotNoSource
	case target == nil:
		a.status = gotNoTarget
	case checkRange(m.window, w.size, m.offset, m.size) != nil, checkRange(m.toWindow, target.Size, m.toOffset, m.size) != nil:
		a.status = gotOutside
	default:
		a.source, a.target = w, target
		w.uses.Add(1)
	}
	a.checked = true
	return true
}

// got handles the answer to a get.
func (p *Peer) got(m *message) error {
	n := m.value
	if n < p.oldest || n >= p.next || p.op(n).msg.kind != kindGet || p.op(n).tell || p.op(n).done || p.op(n).answered {
		return fmt.Errorf("%w: %v: an answer to operation %d, which is no get that is outstanding", fault.ErrProtocol, p.in, n)
	}
	o := p.op(n)
	o.answered = true
	var err error
	switch {
	case o.source.closing.Load():
		err = fmt.Errorf("%w: window %d of this process has ended", fault.ErrUsage, o.msg.toWindow)
	case m.what == gotNoSource:
		err = fmt.Errorf("%w: window %d of %v", conn.ErrWindowGone, o.msg.window, p)
	case m.what == gotNoTarget:
		err = fmt.Errorf("%w: window %d of this process has ended", fault.ErrUsage, o.msg.toWindow)
	case m.what == gotOutside:
		err = fmt.Errorf("%w: get of %d bytes at %d of window %d of %v", fault.ErrUsage, o.msg.size, o.msg.offset, o.msg.window, p)
	}
	p.partEnded(o, err)
	p.advance()
	return nil
}
