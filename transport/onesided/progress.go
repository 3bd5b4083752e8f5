package onesided

import (
	"cmp"
	"errors"
	"fmt"

	"ncclmesh/ibv"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// The owner's number that conn keeps with a put or a message: what it belongs to, and the number of an operation or of
// an answer.
const (
	ownerPut      = 0 // a put of an operation
	ownerMessage  = 1 // the message of an operation
	ownerAnswer   = 2 // a put of an answer
	ownerAnswered = 3 // the message of an answer
	ownerBrief    = 4 // the brief signal of an operation

	ownerShift = 61
)

func owner(what, number uint64) uint64 { return what<<ownerShift | number }

// progress moves the peer's operations on, and handles what has arrived. It reports whether something moved. It does
// nothing while another goroutine is in it.
func (p *Peer) progress() (moved bool) {
	if !p.mu.TryLock() {
		return false
	}
	defer p.mu.Unlock()
	if p.lost != nil {
		return false
	}
	moved, err := p.out.ProgressPuts(p.report)
	p.advance()
	arrived, failed := p.receive() // also where the connections have ended: messages may have come before
	if err = cmp.Or(err, failed); err != nil {
		p.loseLocked(err)
		return true
	}
	before, answered := p.toPost, p.answerPosted
	p.answer()
	p.post()
	came := p.in.Progress() // counts puts of the peer too, of which only carriers that place the bytes tell
	arrived, p.came = arrived || came != p.came, came
	return moved || arrived || p.toPost != before || p.answerPosted != answered
}

// ended handles the end of a put or a message. It is called with the connection locked.
func (p *Peer) ended(by uint64, err error) {
	what, n := by>>ownerShift, by&(1<<ownerShift-1)
	switch what {
	case ownerMessage, ownerAnswered:
		p.delivered++
	case ownerAnswer:
		p.answerEnded(uint32(n))
	}
	if what == ownerPut || what == ownerMessage || what == ownerBrief {
		p.partEnded(p.op(n), err)
	}
}

// partEnded notes that a put or message of an operation has ended, or the answer of a get has come.
func (p *Peer) partEnded(o *op, err error) {
	if o.done { // the peer was lost
		return
	}
	if o.err == nil {
		o.err = err
	}
	if o.parts--; o.parts == 0 && o.isPosted() {
		p.finish(o)
	}
}

// isPosted reports whether all of an operation has begun, or will not because it has failed.
func (o *op) isPosted() bool { return o.err != nil || o.begun == o.size && !o.tell }

// post begins what can begin of the operations, in their order.
func (p *Peer) post() {
	for ; p.toPost < p.next; p.toPost++ {
		if o := p.op(p.toPost); !o.done && !p.postOp(o) {
			return
		}
	}
}

// postOp begins what can begin of an operation. It returns false if some is left.
func (p *Peer) postOp(o *op) bool {
	if o.flush {
		return true
	}
	for o.err == nil && o.begun < o.size {
		b := p.bindings[o.source]
		if b == nil {
			o.err = fmt.Errorf("%w: window %d of this process has ended", fault.ErrUsage, o.source.id)
			break
		}
		to, from, n := o.nextPut(p.space.mostPut)
		put := conn.Put{Window: o.target, Offset: to, Addr: from, Size: n, Region: b.source, Owner: owner(ownerPut, o.number)}
		if o.begun+uint64(n) == o.size && p.tellBriefly(o, &put) {
			o.begun, o.tell = o.size, false
			o.parts += 2
			break
		}
		ok, err := p.out.Put(&put)
		if !p.took(o, ok, err) {
			return false
		}
		if ok {
			o.begun += uint64(n)
		}
	}
	if o.err == nil && o.tell {
		if o.about.Gone() {
			o.err = fmt.Errorf("%w: window %d of %v", conn.ErrWindowGone, o.about.ID, p)
		} else if p.tellBriefly(o, nil) {
			o.tell = false
			o.parts++
		} else if ok, err := p.tell(&o.msg, o.msg.kind == kindGet, owner(ownerMessage, o.number)); !p.took(o, ok, err) {
			return false
		} else if ok {
			o.tell = false
			p.gets += o.asks()
		}
	}
	if o.err != nil && o.msg.kind == kindGet && o.tell {
		o.parts-- // there will be no answer
	}
	if o.parts == 0 {
		p.finish(o)
		p.advance()
	}
	return true
}

// nextPut returns what of an operation's bytes is put next, of at most a number of bytes: the offset in the target window, the address
// and the size.
func (o *op) nextPut(most uint64) (to uint64, from uintptr, n int) {
	return o.to + o.begun, o.from + uintptr(o.begun), int(min(o.size-o.begun, most))
}

// took handles the result of an attempt to begin a part of an operation. It returns false if the part could not begin,
// and is to be tried again, or the connection has ended, which Progress finds.
func (p *Peer) took(o *op, begun bool, err error) bool {
	switch {
	case begun:
		o.parts++
	case errors.Is(err, conn.ErrWindowGone):
		o.err = err
	default:
		return false
	}
	return true
}

// tell sends a message. It returns false if that cannot begin now. asks says that the message is the request of a get.
func (p *Peer) tell(m *message, asks bool, by uint64) (bool, error) {
	if p.sent-p.delivered == sendSlots || asks && p.gets == maxGets {
		return false, nil
	}
	slot := p.slots[p.sent%sendSlots*messageSize:][:messageSize]
	s := m.signal()
	if m.kind == kindSignal {
		m.number = s.number()
	}
	m.encode(slot)
	ok, err := p.out.Signal(ibv.AddrOf(&slot[0]), messageSize, tag, p.sendMR, by)
	if ok {
		p.sent++
		if m.kind == kindSignal {
			p.announced[m.number] = s
		}
	}
	return ok, err
}

// tellBriefly sends an operation's signal as a brief one, and with it a put, which may be nil. It returns false if the peer does not
// know the signal by a number, or it cannot begin now: then the message is sent, which also announces the number.
func (p *Peer) tellBriefly(o *op, put *conn.Put) bool {
	if !o.tell || o.msg.kind != kindSignal || o.about.Gone() {
		return false
	}
	s := o.msg.signal()
	n := s.number()
	if p.announced[n] != s {
		return false
	}
	ok, _ := p.out.BriefSignal(n, tag, owner(ownerBrief, o.number), put)
	return ok
}

// receive handles messages that have arrived, and posts receives. While messages arrive it posts receives only once half of them
// are missing, because a call that waits for one of the messages would wait for the posting too.
func (p *Peer) receive() (moved bool, err error) {
	moved, err = p.handleArrived()
	if err != nil || moved && p.posted-p.received > recvSlots/2 {
		return moved, err
	}
	return moved, p.postReceives()
}

// handleArrived handles messages that have arrived, in their order.
func (p *Peer) handleArrived() (moved bool, err error) {
	for p.received < p.posted {
		if p.change.window != nil {
			done, err := p.changed()
			if !done || err != nil {
				return moved, err
			}
			p.received++
			moved = true
			continue
		}
		if p.flush == nil {
			done, err := p.take(!moved)
			if !done || err != nil {
				return moved, err
			}
		}
		if p.flush != nil {
			visible, err := p.flush.Test(nil)
			if !visible || err != nil {
				return moved, err
			}
			p.flush = nil
		}
		moved = true
		if err := p.handle(&p.current); err != nil {
			p.in.Fail(err)
			return moved, err
		}
		if p.change.window == nil {
			p.received++
		}
	}
	return moved, nil
}

// postReceives posts the receives that are missing.
func (p *Peer) postReceives() error {
	for p.posted-p.received < recvSlots {
		i := p.posted % recvSlots
		p.bufs[0] = conn.Buffer{Addr: p.recvMR.Addr + uintptr(i*messageSize), Size: messageSize, Tag: tag, Region: p.recvMR}
		q, err := p.in.Irecv(p.bufs[:])
		if err != nil && p.posted == p.received {
			return err
		}
		if q == nil { // of a connection that has ended the receives before tell
			return nil
		}
		p.recvs[i] = q
		p.posted++
	}
	return nil
}

// take takes the next message, if it has arrived, into p.current. If puts before it may not be visible to the GPU yet
// it begins to make them so. Unless it polls, only what an earlier poll has found has arrived.
func (p *Peer) take(poll bool) (done bool, err error) {
	i := p.received % recvSlots
	var sizes conn.Sizes
	done, number, err := p.recvs[i].TestSignal(poll, &sizes)
	if !done || err != nil {
		return false, err
	}
	if number >= 0 {
		err = p.recall(uint8(number))
	} else {
		from := p.mem.Bytes()[sendSlots*messageSize:]
		err = p.read(from[i*messageSize:][:messageSize], sizes[0])
	}
	if err != nil {
		err = fmt.Errorf("%w: %v: %w", fault.ErrProtocol, p.in, err)
		p.in.Fail(err)
		return false, err
	}
	if p.gpu != nil {
		p.flush, err = p.in.Iflush(conn.Buffer{Addr: p.gpu.target.Addr, Size: 1, Region: p.gpu.target})
	}
	return err == nil, err
}

// read reads a message of size bytes into p.current. If it is a signal it keeps it for brief signals of its number.
func (p *Peer) read(b []byte, size uint32) error {
	if size != messageSize {
		return fmt.Errorf("a message of %d bytes; all have %d", size, messageSize)
	}
	m := &p.current
	if err := m.decode(b); err != nil {
		return err
	}
	if m.kind == kindSignal {
		p.known[m.number] = m.signal()
	}
	return nil
}

// recall sets p.current to the signal that a brief signal stands for.
func (p *Peer) recall(number uint8) error {
	s := p.known[number]
	if s == (signal{}) {
		return fmt.Errorf("a brief signal of number %d, for which no signal was sent before", number)
	}
	p.current = message{kind: kindSignal, window: s.window, offset: s.offset, value: s.value, what: s.what, number: number}
	return nil
}

// handle acts on a message. An error says that the peer broke the protocol.
func (p *Peer) handle(m *message) error {
	switch m.kind {
	case kindSignal:
		return p.signalled(m)
	case kindGet:
		return p.ask(m)
	}
	return p.got(m)
}

// signalled changes the word that a signal of the peer names. A signal into a window that has ended changes nothing.
func (p *Peer) signalled(m *message) error {
	w := (*p.space.windows.Load())[m.window]
	if w == nil || w.closing.Load() {
		return p.checkEnded(m.window)
	}
	if err := checkWord(w.id, w.size, m.offset); err != nil {
		return fmt.Errorf("%w: %v: %w", fault.ErrProtocol, p.in, err)
	}
	switch {
	case w.kind == lane.HostMemory:
		w.change(SignalOp(m.what), m.offset, m.value)
	case w.local.Load() == nil:
		return fmt.Errorf("%w: %v: a signal for %v, which holds no words of signals", fault.ErrUsage, p.in, w)
	default:
		p.change = change{window: w}
	}
	return nil
}

// checkEnded returns an error if a window was never opened.
func (p *Peer) checkEnded(id uint32) error {
	if id > 0 && id <= p.space.last.Load() {
		return nil
	}
	return fmt.Errorf("%w: %v: a message names window %d; windows up to %d were opened", fault.ErrProtocol, p.in, id, p.space.last.Load())
}

// change changes a word of the window. The puts before are visible to a goroutine that sees the change.
func (w *Window) change(do SignalOp, offset, value uint64) {
	word := wordAt(w.base + uintptr(offset))
	switch do {
	case SignalSet:
		word.Store(value)
	case SignalAdd:
		word.Add(value)
	case SignalInc:
		word.Add(1)
	}
}
