package conn_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"ncclmesh/ibv"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// endPair is both ends of a connection over TCP, with memory of each.
type endPair struct {
	*testing.T
	s      *conn.Sender
	r      *conn.Receiver
	sm, rm *ibv.Memory
	sb, rb []byte
	sg, rg *lane.Region
}

const room = 1 << 16 // bytes of memory of each end

func newEndPair(t *testing.T, s *conn.Sender, r *conn.Receiver) *endPair {
	h := &endPair{T: t, s: s, r: r}
	h.sm, h.sb = transporttest.Memory(t, room)
	h.rm, h.rb = transporttest.Memory(t, room)
	h.sg, h.rg = transporttest.Register(t, s, h.sm), transporttest.Register(t, r, h.rm)
	transporttest.Fill(h.sb, 1)
	return h
}

// send sends size bytes from offset off. The send is done although the receiver does nothing.
func (h *endPair) send(off, size int, tag int32) {
	h.Helper()
	sizes := transporttest.Done(h.T, "send", transporttest.Isend(h.T, h.s, h.sm, off, size, tag, h.sg))
	if int(sizes[0]) != size {
		h.Fatalf("%d bytes were sent of %d", sizes[0], size)
	}
}

// receive waits for size bytes that were sent from offset off.
func (h *endPair) receive(off, size int, tag int32) {
	h.Helper()
	q := transporttest.Irecv(h.T, h.r, transporttest.Buffer(h.rm, 0, room, tag, h.rg))
	got := transporttest.Done(h.T, fmt.Sprintf("receive of %d bytes", size), q)
	if int(got[0]) != size || !bytes.Equal(h.rb[:size], h.sb[off:off+size]) {
		h.Errorf("%d bytes came, want the %d from %d", got[0], size, off)
	}
}

// exchange sends and receives size bytes from offset off.
func (h *endPair) exchange(off, size int, tag int32) {
	h.Helper()
	q := transporttest.Irecv(h.T, h.r, transporttest.Buffer(h.rm, 0, room, tag, h.rg))
	got := transporttest.Both(h.T, "a large one", q, transporttest.Isend(h.T, h.s, h.sm, off, size, tag, h.sg))[0]
	if int(got[0]) != size || !bytes.Equal(h.rb[:size], h.sb[off:off+size]) {
		h.Errorf("%d bytes came, want the %d from %d", got[0], size, off)
	}
}

// Short messages are sent before their receives, as many as the receiver has room for, and go to the buffers
// in the order in which they were sent.
func TestEager(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		h := newEndPair(t, s, r)
		size := func(i int) int { return []int{0, 1, 8, 300, lane.EagerSize}[i%5] }
		for round := range 20 {
			transporttest.WorldOf(t).Sleep(time.Millisecond) // until the reports of matched messages have arrived
			n := 0
			for ; ; n++ {
				q, err := s.Isend(h.sm.Addr()+uintptr(round*100+n), size(round+n), 7, h.sg)
				if err != nil {
					t.Fatal(err)
				}
				if q == nil {
					break
				}
				transporttest.Done(t, "send", q)
			}
			if n < 1 || n > lane.EagerWindow { // some reports of matched messages may not have arrived
				t.Fatalf("%d messages went before their receives, want 1 to %d", n, lane.EagerWindow)
			}
			for i := range n {
				h.receive(round*100+i, size(round+i), 7)
			}
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// A receive whose grant is deferred sends the acknowledgements that the grant would have taken along, because
// a program that waits for a send may test no other receive.
func TestEagerAcknowledges(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		h := newEndPair(t, s, r)
		const large, short, shorts = 2000, 8, 4 // enough short messages that grants are deferred, too few that their number causes an acknowledgement
		q := transporttest.Irecv(t, r, transporttest.Buffer(h.rm, 0, large, 1, h.rg))
		second := transporttest.Irecv(t, r, transporttest.Buffer(h.rm, 0, large, 2, h.rg)) // not complete until the end of the test
		sq := transporttest.Isend(t, s, h.sm, 0, large, 1, h.sg)
		for range shorts {
			h.send(0, short, 7)
		}
		transporttest.Done(t, "the large receive", q)
		last := transporttest.Irecv(t, r, transporttest.Buffer(h.rm, 0, large, 3, h.rg))
		transporttest.Done(t, "the large send", sq)
		for range shorts {
			h.receive(0, short, 7)
		}
		transporttest.Both(t, "the rest", second, last, transporttest.Isend(t, s, h.sm, 0, large, 2, h.sg), transporttest.Isend(t, s, h.sm, 0, large, 3, h.sg))
		transporttest.CloseBoth(t, s, r)
	})
}

// A receiver that tests its receive gets the request for deferred grants over the lane, and need not wait for
// the session.
func TestEagerAsks(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		h := newEndPair(t, s, r)
		const large = 2000
		for i := range lane.EagerWindow {
			h.send(i, 8, 7)
			h.receive(i, 8, 7)
		}
		q := transporttest.Irecv(t, r, transporttest.Buffer(h.rm, 0, large, 7, h.rg))
		if !conn.DefersGrants(r) {
			t.Fatal("the grant was not deferred")
		}
		transporttest.Await(t, "the sender's asking", func() bool {
			if sq, err := s.Isend(h.sm.Addr(), large, 7, h.sg); sq != nil || err != nil {
				t.Fatalf("a send without a grant: %v, %v", sq, err)
			}
			return conn.GrantsRequested(s)
		})
		transporttest.Await(t, "the grant", func() bool { // while the sender does nothing
			if done, err := q.Test(nil); done || err != nil {
				t.Fatalf("a receive of what was not sent: done %v, error %v", done, err)
			}
			return !conn.DefersGrants(r)
		})
		transporttest.Both(t, "the message", q, transporttest.Isend(t, s, h.sm, 0, large, 7, h.sg))
		transporttest.CloseBoth(t, s, r)
	})
}

// A program may test no receive until its sends have begun: deferred grants are sent all the same, and short
// messages go to the receives that are posted.
func TestEagerUnattended(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		h := newEndPair(t, s, r)
		const large, short, shorts = 2000, 8, 3 * lane.EagerWindow
		for i := range shorts { // afterwards grants are deferred
			h.send(i, short, 7)
			h.receive(i, short, 7)
		}
		for _, size := range []int{large, short, large} {
			var receives, sends []*conn.Request
			for i := range shorts {
				receives = append(receives, transporttest.Irecv(t, r, transporttest.Buffer(h.rm, i*large%(room-large), large, 7, h.rg)))
			}
			for range shorts {
				sends = append(sends, transporttest.Isend(t, s, h.sm, 0, size, 7, h.sg))
			}
			for _, sizes := range transporttest.Both(t, "all", append(receives, sends...)...) {
				if int(sizes[0]) != size {
					t.Errorf("%d bytes came or went, want %d", sizes[0], size)
				}
			}
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// Messages that were sent eagerly are received even if the sender closes before their receives are posted. No
// other message is.
func TestEagerThenClose(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		h := newEndPair(t, s, r)
		for i := range lane.EagerWindow {
			h.send(i, lane.EagerSize-i, 7)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		transporttest.Await(t, "the end of the connection", func() bool { return r.Ended() != nil })
		for i := range lane.EagerWindow {
			h.receive(i, lane.EagerSize-i, 7)
		}
		if q, err := r.Irecv([]conn.Buffer{transporttest.Buffer(h.rm, 0, 8, 7, h.rg)}); !errors.Is(err, fault.ErrPeer) {
			t.Errorf("a receive of what was not sent: %v, error %v", q, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Eager messages that were lost with a lane are sent again over another, though the sender, whose sends are
// done, does not call again.
func TestEagerLost(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) { loseEager(t, s, r, 4) })
}

// Eager messages that were lost with a lane are sent again even if the kernel takes them in pieces, though
// the sender does not call again.
func TestEagerLostInPieces(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		transporttest.WorldOf(t).Net.Even(0) // from the first lane that takes another's place
		loseEager(t, s, r, 40)
	})
}

// loseEager makes lanes fail, one after the other, after short messages were sent over them.
func loseEager(t *testing.T, s *conn.Sender, r *conn.Receiver, rounds int) {
	h := newEndPair(t, s, r)
	for round := range rounds { // both lanes, there and back
		for i := range 5 {
			h.send(i, 100+i, 7)
		}
		l := up(s, r)[0][1]
		l.Conn.Owner.ReportFailure(l, fmt.Errorf("%w: said the test in round %d", fault.ErrLane, round))
		transporttest.Await(t, "its end", func() bool {
			r.Lock()
			defer r.Unlock()
			return !l.InService()
		})
		for i := range 5 {
			h.receive(i, 100+i, 7)
		}
		transporttest.Await(t, "the lane", func() bool { return len(up(s, r)) > 1 })
	}
	if n := s.Count.Resent.Value(); n == 0 {
		t.Error("nothing was sent again")
	}
	transporttest.CloseBoth(t, s, r)
}

// A long message is not delayed by short ones of another tag whose receives come later, because the receiver
// may wait for the long one first.
func TestEagerOfAnotherTag(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		h := newEndPair(t, s, r)
		for range 4 { // afterwards grants are deferred
			h.send(0, 8, 7)
			h.receive(0, 8, 7)
		}
		for i := range 3 {
			h.send(i, 8, 7)
		}
		const large = 5000
		q := transporttest.Irecv(t, r, transporttest.Buffer(h.rm, 0, large, 7, h.rg), transporttest.Buffer(h.rm, large, large, 9, h.rg))
		sq := transporttest.Isend(t, s, h.sm, 100, large, 9, h.sg)
		sizes := transporttest.Both(t, "both", q, sq)[0]
		if sizes != (conn.Sizes{8, large}) || !bytes.Equal(h.rb[:8], h.sb[:8]) || !bytes.Equal(h.rb[large:2*large], h.sb[100:100+large]) {
			t.Errorf("%d bytes came", sizes)
		}
		h.receive(1, 8, 7)
		h.receive(2, 8, 7)
		n := 0
		for ; ; n++ { // a short message is not delayed either if there is no room for more eager ones
			if q, err := s.Isend(h.sm.Addr()+uintptr(n), 8, 7, h.sg); q == nil || err != nil {
				break
			}
		}
		h.exchange(200, 8, 9)
		for i := range n {
			h.receive(i, 8, 7)
		}
		for i := range 3 { // the order is kept, whether messages are eager or not
			h.exchange(i, large, 7)
			h.send(i, 8, 7)
			h.receive(i, 8, 7)
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// An eager message that is reported matched counts as delivered by its lane and is not in flight any more, so
// that a stalled lane is found by what others deliver.
func TestEagerIsDelivered(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		h := newEndPair(t, s, r)
		const messages = 3
		for range messages {
			h.send(0, 8, 7)
		}
		for range messages {
			h.receive(0, 8, 7)
		}
		transporttest.Await(t, "the reports of all messages", func() bool {
			b := &s.Conn
			b.Lock()
			defer b.Unlock()
			l := b.Lanes()[0]
			l.Carrier.Fetch()
			return l.Latest == messages
		})
		if waits := conn.OldestInFlight(s); waits != [lane.MaxParts]uint64{} {
			t.Errorf("messages %v are waited for", waits)
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// A message that is longer than its buffer is cut, as one sent over a grant is, and that is logged once.
func TestEagerIsCut(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		log := new(transporttest.Log)
		s, r := transporttest.PairTCP(t, 1, log.Takes(slog.LevelWarn))
		h := newEndPair(t, s, r)
		for i := range 3 {
			h.send(i, 100, 7)
			q := transporttest.Irecv(t, r, transporttest.Buffer(h.rm, 0, 60, 7, h.rg))
			if got := transporttest.Done(t, "the receive", q); got[0] != 60 || !bytes.Equal(h.rb[:60], h.sb[i:i+60]) || h.rb[60] != 0 {
				t.Errorf("%d bytes came", got[0])
			}
		}
		if n := log.Count("was cut"); n != 1 {
			t.Errorf("said %d times, want once", n)
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// A message for a buffer that was deregistered fails the connection, and nothing is written there.
func TestEagerForMemoryThatIsGone(t *testing.T) {
	transporttest.OverTCP(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		h := newEndPair(t, s, r)
		for range 4 { // afterwards grants are deferred
			h.send(0, 8, 7)
			h.receive(0, 8, 7)
		}
		m, b := transporttest.Memory(t, 100)
		g := transporttest.Register(t, r, m)
		q := transporttest.Irecv(t, r, transporttest.Buffer(m, 0, 100, 7, g))
		if err := r.DeregMR(g); err != nil {
			t.Fatal(err)
		}
		h.send(0, 100, 7)
		var err error
		transporttest.Await(t, "the error", func() bool { _, err = q.Test(nil); return err != nil })
		if !strings.Contains(err.Error(), "deregistered") || !bytes.Equal(b, make([]byte, len(b))) {
			t.Errorf("error %v, and %x in the memory", err, b[:100])
		}
		_ = s.Close()
		_ = r.Close()
	})
}
