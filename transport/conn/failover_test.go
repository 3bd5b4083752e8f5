package conn_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"ncclmesh/ibv"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// traffic sends messages of random sizes over a connection, in groups and with tags, many at a time, and
// compares each byte.
type traffic struct {
	t      *testing.T
	rnd    *rand.Rand
	s      *conn.Sender
	r      *conn.Receiver
	sm, rm *ibv.Memory
	sb, rb []byte
	sg, rg *lane.Region
	each   int
	places []place
	count  int
	groups uint64 // groups begun, which is the sequence of the last grant
	hold   bool   // do not send
	deaf   bool   // do not receive
}

// place is the memory of one group of messages.
type place struct {
	recv  *conn.Request
	sends []*conn.Request
	left  int // number of its requests that are not done
	sizes []int
	seeds []int
	to    int // number of sends begun
}

func newTraffic(t *testing.T, rnd *rand.Rand, s *conn.Sender, r *conn.Receiver, under, each int) *traffic {
	f := &traffic{t: t, rnd: rnd, s: s, r: r, each: each, places: make([]place, under)}
	n := under * lane.MaxSubs * each
	f.sm, f.sb = transporttest.Memory(t, n)
	f.rm, f.rb = transporttest.Memory(t, n)
	f.sg, f.rg = transporttest.Register(t, s, f.sm), transporttest.Register(t, r, f.rm)
	return f
}

// beyond returns the bytes of a message and of the memory after it that are compared.
func (f *traffic) beyond(size int) int { return min(size+256, f.each) }

func (f *traffic) at(i, k int) int { return (i*lane.MaxSubs + k) * f.each }

// step does what is possible without waiting. It begins at most most messages.
func (f *traffic) step(most int) {
	for i := range f.places {
		p := &f.places[i]
		if p.left == 0 && f.count < most && !f.deaf {
			f.begin(i)
		}
		for !f.hold && p.left > 0 && p.to < len(p.sizes) {
			q, err := f.s.Isend(f.sm.Addr()+uintptr(f.at(i, p.to)), p.sizes[p.to], int32(i*lane.MaxSubs+p.to), f.sg)
			if err != nil {
				f.t.Fatalf("send: %v", err)
			}
			if q == nil {
				break
			}
			p.sends = append(p.sends, q)
			p.to++
		}
		f.test(i)
	}
}

// begin grants a group of messages of random sizes.
func (f *traffic) begin(i int) {
	p := &f.places[i]
	*p = place{}
	var bufs []conn.Buffer
	for k := range 1 + f.rnd.IntN(3) {
		size := f.rnd.IntN(1 << f.rnd.IntN(17))
		p.sizes, p.seeds = append(p.sizes, size), append(p.seeds, f.rnd.Int())
		at := f.at(i, k)
		transporttest.Fill(f.sb[at:at+size], p.seeds[k])
		clear(f.rb[at : at+f.beyond(size)])
		bufs = append(bufs, transporttest.Buffer(f.rm, at, f.each, int32(i*lane.MaxSubs+k), f.rg))
	}
	q, err := f.r.Irecv(bufs)
	if err != nil {
		f.t.Fatalf("receive: %v", err)
	}
	if q == nil {
		return
	}
	p.recv, p.left = q, 1+len(bufs)
	f.count += len(bufs)
	f.groups++
}

// test tests the outstanding requests of a group, and checks what has arrived.
func (f *traffic) test(i int) {
	p := &f.places[i]
	if p.recv != nil && !f.deaf {
		var sizes conn.Sizes
		ok, err := p.recv.Test(&sizes)
		if err != nil {
			f.t.Fatalf("receive: %v", err)
		}
		if ok {
			p.recv = nil
			p.left--
			for k, n := range p.sizes {
				if int(sizes[k]) != n {
					f.t.Fatalf("%d bytes came of a message of %d", sizes[k], n)
				}
				want := make([]byte, f.beyond(n))
				transporttest.Fill(want[:n], p.seeds[k])
				if at := f.at(i, k); !bytes.Equal(f.rb[at:at+len(want)], want) {
					f.t.Fatalf("a message of %d bytes is not what was sent", n)
				}
			}
		}
	}
	for k, q := range p.sends {
		if q == nil {
			continue
		}
		ok, err := q.Test(nil)
		if err != nil {
			f.t.Fatalf("send: %v", err)
		}
		if ok { // the test may overwrite the memory now
			p.sends[k] = nil
			p.left--
			at := f.at(i, k)
			clear(f.sb[at : at+p.sizes[k]])
		}
	}
}

// idle reports whether nothing is outstanding.
func (f *traffic) idle() bool {
	for i := range f.places {
		if f.places[i].left > 0 {
			return false
		}
	}
	return true
}

// granted reports whether every place has a grant that the sender can use.
func (f *traffic) granted() bool {
	for i := range f.places {
		seq := f.groups - uint64(i)
		if f.places[i].left == 0 || lane.Acquire(&f.s.Ring.Slot(seq)[0].Seq) != seq {
			return false
		}
	}
	return true
}

// run sends that many more messages, and calls now from time to time.
func (f *traffic) run(messages int, now func()) {
	f.t.Helper()
	most := f.count + messages
	next := f.count
	transporttest.Await(f.t, "all messages", func() bool {
		f.step(most)
		if f.count >= next {
			next += 1 + f.rnd.IntN(10)
			now()
		}
		return f.count >= most && f.idle()
	})
}

// up returns the lanes in service at both ends that neither end has marked as failed.
func up(s *conn.Sender, r *conn.Receiver) (lanes [][2]*lane.Lane) {
	for _, c := range []*conn.Conn{&s.Conn, &r.Conn} {
		c.Lock()
		defer c.Unlock()
	}
	there := r.Lanes()
	for i, l := range s.Lanes()[:min(len(there), len(s.Lanes()))] {
		if k := there[i]; l.InService() && k.InService() && l.Failure() == nil && k.Failure() == nil {
			lanes = append(lanes, [2]*lane.Lane{l, k})
		}
	}
	return lanes
}

// Lanes fail one after another, noticed at one end or both, and come back: no message is lost, doubled or
// damaged as long as one lane is left.
func TestFailover(t *testing.T) {
	transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rnd := rand.New(rand.NewPCG(seed, 0))
		f := newTraffic(t, rnd, s, r, 12, 1<<16)
		all := len(up(s, r))
		f.run(1000, func() {
			if lanes := up(s, r); len(lanes) > 1 {
				fail(rnd, lanes[rnd.IntN(len(lanes))])
			}
		})
		if transporttest.ComeBack(&s.Conn) {
			transporttest.Await(t, "all lanes", func() bool { return len(up(s, r)) == all })
		}
		f.run(100, func() {})
		transporttest.CloseBoth(t, s, r)
	})
}

// A cable loses grants, parts and acknowledgements before its lane fails: all of them are sent again, and no
// message is received twice.
func TestLostInFlight(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		s, r := transporttest.Connect(t, transporttest.New(t), transporttest.New(t))
		t.Cleanup(func() { transporttest.Heal(t) })
		rnd := transporttest.Draws(t)
		f := newTraffic(t, rnd, s, r, 12, 1<<16)
		f.run(10, func() {})
		for i := range 6 {
			var lanes [][2]*lane.Lane
			transporttest.Await(t, "both lanes", func() bool { lanes = up(s, r); return len(lanes) == 2 })
			port, lose := i%2, []func(testing.TB, ...int){transporttest.Stall, transporttest.LoseAcks}[rnd.IntN(2)]
			most := f.count + 40
			if i == 0 { // the faster lane, on which a message is certainly lost, because its grant has arrived
				lose, f.hold = transporttest.Stall, true
				transporttest.Await(t, "all grants", func() bool { f.step(most); return f.granted() })
			}
			lose(t, port)
			if f.hold = false; i == 0 {
				transporttest.Await(t, "a message that is lost", func() bool { f.step(most); return backlog(lanes[port][0]) > 0 })
			}
			for range 50 + rnd.IntN(200) {
				f.step(most)
			}
			fail(rnd, lanes[port]) // retransmission may have found the failure before
			f.run(20, func() {})
			transporttest.Heal(t)
		}
		if s.Count.Resent.Value() == 0 {
			t.Error("nothing was sent again")
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// More parts are lost at once than the resend credit allows to send again, and some of them were sent again
// before, which has used their credit. Those are sent again while others wait for credit, because the
// receiver gives new credit only after they have arrived.
func TestMoreIsLostThanResendCredit(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		split := func(o *transport.Options) { o.Transport, o.StripeThreshold = transport.TransportRDMA, 1024 }
		s, r := transporttest.Connect(t, transporttest.New(t, split), transporttest.New(t, split))
		const early, size, room = 100, 64, 2048 // messages before; bytes of a message in one part, and of one in two
		const all = early + lane.Window
		m, bytes := transporttest.Memory(t, 2*all*room)
		transporttest.Fill(bytes[:all*room], 1)
		sg, rg := transporttest.Register(t, s, m), transporttest.Register(t, r, m)
		var sends, receives []*conn.Request
		receive := func(n int) {
			for range n {
				receives = append(receives, transporttest.Irecv(t, r, transporttest.Buffer(m, (all+len(receives))*room, room, 1, rg)))
			}
		}
		send := func(n, size int) {
			for range n {
				sends = append(sends, transporttest.Isend(t, s, m, len(sends)*room, size, 1, sg))
			}
		}
		done := func(what string, all []*conn.Request) {
			for i, q := range all {
				transporttest.Done(t, fmt.Sprintf("%s %d", what, i), q)
			}
		}
		lose := func() { // all parts in flight
			for _, ends := range up(s, r) {
				for _, l := range ends {
					l.Conn.Owner.ReportFailure(l, fmt.Errorf("%w: %v: %v: said the test", fault.ErrLane, l.Conn, l))
				}
			}
			transporttest.Await(t, "both lanes", func() bool { return len(up(s, r)) == 2 })
		}

		receive(early)
		send(early, size) // the last messages reuse these requests
		done("receive", receives)
		receive(lane.Window)
		transporttest.Settle(t)
		transporttest.Late(t, 50*time.Millisecond)
		send(lane.Window-early, size)
		lose() // all of them; they are sent again
		done("send", sends[:early])
		send(early, room)
		lose() // these, and the parts that were sent again
		transporttest.Heal(t)
		done("receive", receives[early:]) // gives credit
		done("send", sends[early:])
		for i := range receives {
			n := size
			if i >= lane.Window {
				n = room
			}
			if from, to := i*room, (all+i)*room; !slices.Equal(bytes[from:from+n], bytes[to:to+n]) {
				t.Errorf("message %d differs", i)
			}
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// backlog returns the bytes that a lane has not delivered.
func backlog(l *lane.Lane) int64 {
	b := l.Conn.Owner.(*conn.Conn)
	b.Lock()
	defer b.Unlock()
	return l.Backlog
}

// fail reports a lane as failed at one of its ends, or both.
func fail(rnd *rand.Rand, ends [2]*lane.Lane) {
	for _, i := range [][]int{{0}, {1}, {0, 1}, {1, 0}}[rnd.IntN(4)] {
		l := ends[i]
		l.Conn.Owner.ReportFailure(l, fmt.Errorf("%w: %v: %v: said the test", fault.ErrLane, l.Conn, l))
	}
}

// A new port joins a connection, whose outstanding grants lack a key for it and whose memory was registered
// without it. The connection lives on when only that port is left.
func TestPortJoins(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		hurry := func(o *transport.Options) { o.ProofWait = 50 * time.Millisecond } // for the port that is stalled
		s, r := transporttest.ConnectOver(t, transporttest.New(t, hurry), transporttest.New(t, hurry), lane.Verbs)
		t.Cleanup(func() { transporttest.Heal(t) })
		rnd := transporttest.Draws(t)
		f := newTraffic(t, rnd, s, r, 12, 1<<16)
		f.run(50, func() {})
		f.hold = true // with grants outstanding
		most := f.count + 40
		transporttest.Await(t, "all grants", func() bool { f.step(most); return f.granted() })
		transporttest.Stall(t, 0)
		fail(rnd, up(s, r)[0])
		transporttest.Await(t, "the other port", func() bool {
			lanes := up(s, r)
			return len(lanes) == 1 && lanes[0][0].Port.Now().Device == "rdma1"
		})
		f.hold = false
		f.run(200, func() {})
		transporttest.Heal(t)
		transporttest.Await(t, "both ports", func() bool { return len(up(s, r)) == 2 })
		f.run(500, func() {
			if lanes := up(s, r); len(lanes) > 1 {
				fail(rnd, lanes[rnd.IntN(len(lanes))])
			}
		})
		transporttest.CloseBoth(t, s, r)
	})
}

// The last lane fails too, and comes back: nothing is lost.
func TestAllLanesFail(t *testing.T) {
	transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		if !transporttest.ComeBack(&s.Conn) {
			t.Skip("no connection of package path has such lanes, and they do not come back")
		}
		rnd := transporttest.Draws(t)
		f := newTraffic(t, rnd, s, r, 12, 1<<16)
		f.run(300, func() {
			for _, ends := range up(s, r) {
				fail(rnd, ends)
			}
		})
		transporttest.CloseBoth(t, s, r)
	})
}

// If there is no path any more the connection waits for one, and then ends with an error that names every
// lane and why it failed.
func TestNoPath(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		hurry := func(o *transport.Options) {
			o.LaneWait, o.Transport = 300*time.Millisecond, transport.TransportRDMA
			o.HostID = "n" // short, because the text to the peer is cut to 500 bytes
		}
		s, r := transporttest.Connect(t, transporttest.New(t, hurry), transporttest.New(t, hurry))
		f := newTraffic(t, rand.New(rand.NewPCG(1, 1)), s, r, 2, 1<<16)
		f.run(10, func() {})
		transporttest.Stall(t)
		t.Cleanup(func() { transporttest.Heal(t) })
		for i, l := range s.Lanes() {
			l.Conn.Owner.ReportFailure(l, fmt.Errorf("%w: %v: %v: reason %d", fault.ErrLane, l.Conn, l, i))
		}
		for _, c := range []*conn.Conn{&s.Conn, &r.Conn} {
			transporttest.Await(t, "the end", func() bool { return c.Ended() != nil })
			err := c.Ended()
			for _, want := range []string{"no path to", "NCCL_MESH_LANE_WAIT", "reason 0", "reason 1", "rdma0:1", "rdma1:1"} {
				if !errors.Is(err, fault.ErrPeer) || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want ErrPeer with %q", err, want)
				}
			}
		}
		transporttest.CloseBoth(t, s, r)
	})
}
