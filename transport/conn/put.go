package conn

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// A put writes bytes into a window of the receiver without a grant: see [Window]. It is split over the lanes as a
// message is. Over queue pairs its parts are plain writes, of which the receiver learns nothing; other carriers place
// them as parts of messages. A signal is a message that tells the receiver of puts: see Signal, and BriefSignal, whose
// parts can carry the bytes of a put. putlost.go says what becomes of both when a lane fails.

// MaxPut is the most bytes of one put.
const MaxPut = 1 << 30

// putWindow is the number of puts that may be outstanding. putBase is the request number of the first one's parts, so
// that lanes can tell puts from messages.
const (
	putWindow = 256
	putBase   = 1024
)

const _ = uint(putBase - (lane.Window + lane.EagerWindow))

// ErrWindowGone is the error of a put into a window that the receiver has ended.
var ErrWindowGone = fmt.Errorf("%w: the peer no longer has the window", fault.ErrUsage)

// RemoteWindow is a window of the receiver, as the sender knows it.
type RemoteWindow struct {
	ID   uint32
	Kind lane.MemoryKind
	Size uint64

	gone   atomic.Bool // the receiver has told of its end
	grant  lane.Grant  // its address and keys; guarded by the connection's mutex, as is undelivered
	parts  int         // of puts into it, those that are neither delivered nor given up
	ending bool        // the receiver waits for this side's agreement
}

// Gone reports whether the window has ended. It may be called from any goroutine.
func (w *RemoteWindow) Gone() bool { return w.gone.Load() }

// remoteWindows are the windows of which a receiver has told its sender.
type remoteWindows struct {
	mu   sync.Mutex // a leaf
	last uint32     // the largest number
	byID map[uint32]*RemoteWindow
}

// Window returns the receiver's window of a number. It returns nil before the sender has been told of the window, and
// after the window's end; known then says that the window has ended. It may be called from any goroutine.
func (s *Sender) Window(id uint32) (w *RemoteWindow, known bool) {
	s.windows.mu.Lock()
	defer s.windows.mu.Unlock()
	return s.windows.byID[id], id > 0 && id <= s.windows.last
}

// puts is a sender's account of its puts and signals.
type puts struct {
	all         [putWindow]put
	next        int               // index of the next put, which must be free
	done        [putWindow]uint16 // a ring of the indices of puts that are done, oldest first
	head, count int
	part        lane.Part // scratch space for the part that is being sent

	inFlight [lane.MaxParts]int // by lane: parts of puts that were sent over it and are neither delivered nor known to be lost
	lost     int                // parts that are to be sent again
	touched  uint32             // lanes that have carried parts of puts since the last signal

	signals     [lane.Window]signal // by index of the request
	order       [lane.Window]uint16 // a ring of the requests of signals that were not reported done, oldest first
	first, some int
}

// put is a put that is outstanding, or whose end was not reported yet.
type put struct {
	index     int
	active    bool
	owner     uint64
	err       error // why it was given up
	window    *RemoteWindow
	region    *lane.Region // of the source
	addr      uintptr      // of the source
	offset    uint64       // in the window
	posted    uint64       // number of its posting, as that of a message
	last      uint8        // index of the last part
	remaining uint32       // a bit for each part that is not delivered
	lost      uint32       // a bit for each part that is to be sent again
	again     uint32       // a bit for each part that was lost at some time
	carried   uint32       // a bit for each part whose delivery that of a brief signal on its lane will show: see brief.go
	lanes     [lane.MaxParts]uint8
	sizes     [lane.MaxParts]uint32
	numbers   [lane.MaxParts]uint64 // number of each part's last posting
}

// newPuts returns an account without puts.
func newPuts() *puts {
	t := new(puts)
	for i := range t.all {
		t.all[i].index = i
	}
	return t
}

// windowAnnounced handles a receiver's word of a window, or of new keys of it.
//
// Preconditions: s is locked.
func (s *Sender) windowAnnounced(m *handshake.Window) {
	if s.puts == nil {
		s.puts = newPuts()
	}
	w, err := s.windows.announced(m)
	if err != nil {
		s.Fail(fmt.Errorf("%w: %v: %w", fault.ErrProtocol, s, err))
		return
	}
	clear(w.grant.RKeys[:])
	copy(w.grant.RKeys[:], m.RKeys)
	s.resumePending = s.resumePending || s.resendPending // lost parts may have waited for a key
}

// announced returns the window that a receiver announces. If it is new it is added.
func (r *remoteWindows) announced(m *handshake.Window) (*RemoteWindow, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.byID[m.ID]
	switch {
	case w == nil && (len(r.byID) == maxWindows || m.ID <= r.last), m.ID > lane.MaxWindow, m.Base+m.Size < m.Base:
		return nil, fmt.Errorf("the receiver opens window %d, %d bytes at %#x, beside %d others", m.ID, m.Size, m.Base, len(r.byID))
	case w == nil:
		w = &RemoteWindow{ID: m.ID, Kind: lane.MemoryKind(m.Kind), Size: m.Size}
		w.grant = lane.Grant{Addr: m.Base, Capacity: 1} // not 0, because empty grants need no keys
		if r.byID == nil {
			r.byID = map[uint32]*RemoteWindow{}
		}
		r.byID[m.ID], r.last = w, m.ID
	case w.grant.Addr != m.Base || w.Size != m.Size || w.Kind != lane.MemoryKind(m.Kind):
		return nil, fmt.Errorf("the receiver moves window %d", m.ID)
	}
	return w, nil
}

// windowEnds handles a receiver's word that a window ends.
//
// Preconditions: s is locked.
func (s *Sender) windowEnds(m *handshake.WindowEnd) {
	s.windows.mu.Lock()
	w := s.windows.byID[m.ID]
	delete(s.windows.byID, m.ID)
	s.windows.mu.Unlock()
	if w == nil {
		s.Fail(fmt.Errorf("%w: %v: the receiver ends window %d, which it has not opened", fault.ErrProtocol, s, m.ID))
		return
	}
	w.ending = true
	w.gone.Store(true)
	s.giveUpLost(w)
	s.agreeToEnd(w)
}

// agreeToEnd tells the receiver that no put can reach a window any more, once that is so.
//
// Preconditions: s is locked.
func (s *Sender) agreeToEnd(w *RemoteWindow) {
	if w.ending && w.parts == 0 {
		w.ending = false
		s.sendOrFail(&handshake.WindowEnd{Conn: s.ID, ID: w.ID})
	}
}

// Put describes a put: Size bytes at Addr, which lie in Region, go to an offset of a window.
type Put struct {
	Window *RemoteWindow
	Offset uint64
	Addr   uintptr
	Size   int
	Region *lane.Region
	Owner  uint64 // the owner's number
}

// Put begins a put. It returns false without an error if that cannot begin now; the caller then tries again.
// ProgressPuts reports, with the owner's number, when the bytes are in the receiver's memory.
func (s *Sender) Put(b *Put) (begun bool, err error) {
	if !s.TryLock() {
		return false, nil
	}
	defer s.Unlock()
	if err := s.checkPut(b); err != nil {
		return false, err
	}
	t := s.puts
	p := &t.all[t.next]
	if p.active || s.resendPending { // lost parts of earlier puts go first
		s.poll()
		return false, s.Ended()
	}
	n, which := s.cut(b.Size, &b.Window.grant)
	if n == 0 { // no lane is in service for which the window has a key
		return false, nil
	}
	if !s.hasRoom(which) {
		s.poll()
		if err := s.Ended(); err != nil || p.active || !s.hasRoom(which) {
			return false, err
		}
	}
	s.startPut(b, n)
	s.postPut(p)
	return true, nil
}

// checkPut returns an error if a put cannot be meant, or the connection has ended.
//
// Preconditions: s is locked.
func (s *Sender) checkPut(b *Put) error {
	w := b.Window
	switch {
	case b.Size < 1 || b.Size > MaxPut || !b.Region.Covers(b.Addr, b.Size):
		return fmt.Errorf("%w: %v: put of %d bytes at %#x is outside the registered memory, or not 1 to %d bytes", fault.ErrUsage, s, b.Size, b.Addr, MaxPut)
	case b.Offset > w.Size || uint64(b.Size) > w.Size-b.Offset:
		return fmt.Errorf("%w: %v: put of %d bytes at %d into window %d of %s, which has %d bytes", fault.ErrUsage, s, b.Size, b.Offset, w.ID, s.Session.Name(), w.Size)
	case w.Gone():
		return s.goneError(w)
	}
	return s.checkUsable("put")
}

// startPut makes the next put of the account outstanding, in n parts, which the caller posts.
//
// Preconditions: s is locked, and that put is free.
func (s *Sender) startPut(b *Put, n int) *put {
	t := s.puts
	p := &t.all[t.next]
	t.next = (t.next + 1) % putWindow
	s.pending++
	s.posted++
	b.Region.InUse++
	p.active, p.err, p.owner, p.window, p.region, p.addr, p.offset = true, nil, b.Owner, b.Window, b.Region, b.Addr, b.Offset
	p.posted, p.last, p.remaining, p.lost, p.again, p.carried = s.posted, uint8(n-1), 1<<n-1, 0, 0, 0
	s.Count.Bytes.Add(uint64(b.Size))
	return p
}

// goneError returns the error of an operation on a window that has ended.
func (s *Sender) goneError(w *RemoteWindow) error {
	return fmt.Errorf("%w: %v: window %d of %s", ErrWindowGone, s, w.ID, s.Session.Name())
}

// postPut posts the parts of a put, as cut has divided it.
func (s *Sender) postPut(p *put) {
	k := 0
	for i, l := range s.lanes {
		b := s.split[i]
		if b == 0 {
			continue
		}
		p.sizes[k] = uint32(b)
		p.window.parts++
		s.sendPutPart(l, p, k)
		k++
	}
}

// sendPutPart sends part k of a put over a lane. If the lane does not take it, the lane fails, and the part is sent
// again after that.
func (s *Sender) sendPutPart(l *lane.Lane, p *put, k int) {
	t, q := s.puts, &s.puts.part
	p.lanes[k], p.numbers[k] = l.Index, s.posted
	var skip uint64
	for i := range k {
		skip += uint64(p.sizes[i])
	}
	q.Request, q.Grant, q.Region, q.Window = putBase+p.index, &p.window.grant, p.region, p.window.ID
	q.Local, q.Offset, q.Size = p.addr+uintptr(skip), p.offset+skip, int(p.sizes[k])
	q.Imm.Part, q.Imm.Last, q.Imm.Brief = uint8(k), p.last, false
	q.Inline = p.region.Kind == lane.HostMemory
	if l.Backlog == 0 && s.measured(l) {
		s.startMeasure(l, q.Size)
	}
	t.inFlight[l.Index]++
	t.touched |= 1 << l.Index
	if err := l.Carrier.Send(q); err != nil {
		l.Break(err)
	}
	l.Backlog += int64(q.Size)
	l.Bytes.Add(uint64(q.Size))
	l.Parts.Add(1)
}

// putDelivered handles the delivery of a part of a put to the peer's memory.
func (s outgoing) putDelivered(l *lane.Lane, index, part int) {
	if s.puts == nil || index >= putWindow || part >= lane.MaxParts || s.puts.all[index].remaining&(1<<part) == 0 {
		s.Fail(fmt.Errorf("%w: %v: completion for part %d of put %d, which is not outstanding", fault.ErrInternal, s, part, index))
		return
	}
	p := &s.puts.all[index]
	size := int(p.sizes[part])
	l.Backlog -= int64(size)
	l.Delivered++
	l.Latest = max(l.Latest, p.numbers[part])
	s.noteDelivered()
	if s.measured(l) && s.measure(l, size) {
		lane.Compare(s.lanes)
	}
	s.puts.inFlight[l.Index]--
	s.endPutPart(p, part)
}

// endPutPart notes that a part of a put is delivered or given up, and completes the put after the last.
func (s *Sender) endPutPart(p *put, part int) {
	p.window.parts--
	if p.remaining &^= 1 << part; p.remaining == 0 {
		t := s.puts
		t.done[(t.head+t.count)%putWindow] = uint16(p.index)
		t.count++
		s.pending--
		p.region.InUse--
		p.region = nil
	}
	s.agreeToEnd(p.window)
}

// ProgressPuts polls the connection. It calls done for each put and each signal that has ended since the last call,
// with its owner's number, and with an error if the put was given up because its window has ended. done must not call
// the connection. ProgressPuts returns why no further put or signal will end.
func (s *Sender) ProgressPuts(done func(owner uint64, err error)) (moved bool, err error) {
	if !s.TryLock() {
		return false, nil
	}
	defer s.Unlock()
	before := s.ending.Load() // loaded before the poll, which then finds all that came before this ending
	s.poll()
	t := s.puts
	if t == nil {
		return false, s.Ended()
	}
	for ; t.count > 0; t.count-- {
		p := &t.all[t.done[t.head]]
		t.head = (t.head + 1) % putWindow
		p.active, p.window, moved = false, nil, true
		done(p.owner, p.err)
	}
	for ; t.some > 0 && s.requests[t.order[t.first]].done; t.some-- {
		r := &s.requests[t.order[t.first]]
		t.first = (t.first + 1) % lane.Window
		x := &t.signals[r.index]
		owner := x.owner
		x.active, x.carries = false, false
		if r.trace != nil {
			r.notifyWatch(true)
		}
		s.board.End(r.index)
		r.active, moved = false, true
		s.recycle(r)
		done(owner, nil)
	}
	if moved && !t.all[t.next].active { // both reads bring into the processor's cache what the next put and signal need first
		lane.Acquire(&s.Ring.Slot(s.head)[0].Seq)
	}
	if s.pending > 0 {
		return moved, s.requestError(before)
	}
	return moved, s.Ended()
}

// oldestInFlight is Sender.oldestInFlight for parts of puts.
func (t *puts) oldestInFlight(first *[lane.MaxParts]uint64) {
	for i := range t.all {
		p := &t.all[i]
		for left := p.remaining &^ p.lost; left != 0; left &= left - 1 {
			k := bits.TrailingZeros32(left)
			if f := &first[p.lanes[k]]; *f == 0 || p.numbers[k] < *f {
				*f = p.numbers[k]
			}
		}
	}
}

// abandonPuts ends all puts, which no lane carries any more.
//
// Preconditions: s is locked and all lanes are stopped.
func (s *Sender) abandonPuts() {
	if s.puts == nil {
		return
	}
	for i := range s.puts.all {
		if p := &s.puts.all[i]; p.remaining != 0 {
			p.remaining, p.lost = 0, 0
			p.region.InUse--
			p.region = nil
		}
	}
}
