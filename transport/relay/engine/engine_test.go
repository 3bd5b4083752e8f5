package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/verbs"
	"ncclmesh/transport/relay"
	"ncclmesh/transport/relay/engine"
	"ncclmesh/transport/relay/hop"
	"ncclmesh/transport/topology"
)

// place is a port of this node whose circuits lead back to it.
type place struct {
	port *verbs.Port
	from topology.Address
}

func newPlace(t *testing.T) place {
	t.Helper()
	f := transporttest.New(t).Paths()
	p := f.Ports[slices.IndexFunc(f.Ports, func(p lane.Port) bool { return p.Kind() == lane.Verbs })].(*verbs.Port)
	gids := p.Now().GIDs
	return place{p, gids[slices.IndexFunc(gids, func(a topology.Address) bool { return a.Type == topology.GIDTypeRoCEv2 && a.Addr.Is4In6() })]}
}

func newEngine(t *testing.T, memory int64) *engine.Forwarder {
	t.Helper()
	e := engine.New(engine.Config{Log: slog.New(slog.DiscardHandler), Memory: memory})
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// end is an end of a circuit that sends whatever a test requires.
type end struct {
	*hop.Endpoint
	place place
	mem   *ibv.Memory
	mr    *ibv.MR
	cq    *ibv.CQ
	wc    []ibv.WC
	frame []byte // to send from
	psn   uint32
	out   hop.Window
	read  handshake.Ring
}

func newEnd(t *testing.T, p place) *end {
	t.Helper()
	const receives = hop.TowardsSender
	e := &end{place: p}
	var err error
	try := func(next error) {
		t.Helper()
		if next != nil {
			t.Fatal(next)
		}
	}
	e.mem, err = ibv.Alloc(receives*2112 + 1<<18)
	try(err)
	e.mr, err = p.port.PD().RegMR(e.mem.Addr(), uintptr(e.mem.Len()), ibv.IBV_ACCESS_LOCAL_WRITE)
	try(err)
	e.cq, err = p.port.Context().CreateCQ(hop.Completions(receives), nil)
	try(err)
	e.Endpoint, err = hop.NewEndpoint(p.port.PD(), e.cq, receives, 0)
	try(err)
	e.SetReceiveMemory(ibv.Carve[byte](e.mem, receives*2112), 2112, e.mr.LKey())
	e.frame = ibv.Carve[byte](e.mem, 1<<17)
	e.wc = ibv.Carve[ibv.WC](e.mem, 16)
	_, err = p.port.Init(e.QP, 0)
	try(err)
	try(e.PostReceives(receives))
	e.psn = p.port.PSN("an end")
	t.Cleanup(func() {
		if err := errors.Join(e.Endpoint.Close(), e.cq.Close(), e.mr.Close(), e.mem.Free()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// poll handles completions, and returns how many requests of each kind are done.
func (e *end) poll(t *testing.T, count func(hop.Work, *ibv.WC)) {
	t.Helper()
	n, err := e.cq.Poll(e.wc)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		work, _, _ := hop.WorkOf(e.wc[i].WRID)
		e.Polled(work)
		count(work, &e.wc[i])
	}
}

// circuit is one relay between two ends.
type circuit struct {
	place    place
	engine   *engine.Forwarder
	joint    relay.Relayed
	from, to *end

	mu    sync.Mutex
	ended error
}

func (c *circuit) over() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// newCircuit makes a circuit through one relay. The relay is the last one unless there is another ring behind it.
func newCircuit(t *testing.T, p place, e *engine.Forwarder) *circuit {
	t.Helper()
	c := &circuit{place: p, engine: e, from: newEnd(t, p), to: newEnd(t, p)}
	ask := &handshake.CircuitOpen{Kind: handshake.LaneVerbs}
	p.port.Half(&ask.Half, p.from, c.from.Num(), c.from.psn)
	leg := relay.Leg{Port: p.port, From: p.from, To: p.from.Addr, Name: "there"}
	var err error
	c.joint, err = e.Begin(ask, relay.HopPair{In: leg, Out: leg, Last: true, Ended: func(err error) {
		c.mu.Lock()
		c.ended = err
		c.mu.Unlock()
	}})
	if err != nil {
		t.Fatal(err)
	}
	next := c.joint.Next()
	c.to.out, c.to.read = hop.NewWindow(next.Write, hop.Back, hop.BackUndelivered), next.Read
	if _, err := p.port.Join(c.to.QP, verbs.Link{From: p.from, Remote: next.Half, PSN: c.to.psn, Begun: uint8(next.Half.Token), Answered: 1}); err != nil {
		t.Fatal(err)
	}
	answer := &handshake.CircuitOpened{}
	p.port.Half(&answer.Half, p.from, c.to.Num(), c.to.psn)
	if err := c.joint.Connect(context.Background(), answer); err != nil {
		t.Fatal(err)
	}
	prev := c.joint.Prev()
	c.from.out = hop.NewWindow(prev.Write, hop.Forth, hop.ForthUndelivered)
	if _, err := p.port.Join(c.from.QP, verbs.Link{From: p.from, Remote: prev.Half, PSN: c.from.psn, Begun: 1, Answered: 1}); err != nil {
		t.Fatal(err)
	}
	return c
}

// say writes a frame of that many bytes that a test has made, at a place.
func (e *end) say(t *testing.T, place uint32, h hop.Header, bytes int) {
	t.Helper()
	h.Encode(e.frame)
	piece := hop.Piece{Addr: ibv.AddrOf(&e.frame[0]), Length: bytes, Key: e.mr.LKey()}
	if err := e.Frame(&e.out, place, place, piece, hop.Piece{}); err != nil {
		t.Fatal(err)
	}
	transporttest.Settle(t)
}

// credit sends a credit that a test has made.
func (e *end) credit(t *testing.T, freed, delivered uint64) {
	t.Helper()
	if err := e.SendCredit(freed, delivered, 1); err != nil {
		t.Fatal(err)
	}
}

// A message that violates the protocol ends its circuit, with a reason, and no other circuit; and all its resources are
// released.
func TestHostile(t *testing.T) {
	for _, tt := range []struct {
		name string
		say  func(t *testing.T, c *circuit)
		want string
	}{
		{"a frame before its turn", func(t *testing.T, c *circuit) { c.from.say(t, 0, hop.Header{Seq: 2, Kind: hop.Begin}, 64) }, "frame 2 arrived, 1 is next"},
		{"no header", func(t *testing.T, c *circuit) { c.from.say(t, 0, hop.Header{}, 64) }, "is of kind 0"},
		{"a header without zeros", func(t *testing.T, c *circuit) {
			c.from.frame[40] = 1
			c.from.say(t, 0, hop.Header{Seq: 1, Kind: hop.Begin}, 64)
		}, "where zeros belong"},
		{"half a header", func(t *testing.T, c *circuit) { c.from.say(t, 0, hop.Header{Seq: 1, Kind: hop.Begin}, 32) }, "32 bytes arrived at 0"},
		{"a wrong length", func(t *testing.T, c *circuit) {
			c.from.say(t, 0, hop.Header{Seq: 1, Kind: hop.Begin, Length: 100}, 64)
		}, "of 100 bytes arrived with 0"},
		{"a place outside the ring, as it says", func(t *testing.T, c *circuit) {
			ring := c.from.out.Ring
			c.from.out.Ring.Base -= 1 << 30 * hop.Unit
			h := hop.Header{Seq: 1, Kind: hop.Begin}
			c.from.say(t, 1<<30, h, 64)
			c.from.out.Ring = ring
		}, "64 bytes arrived at"},
		{"a place outside the ring", func(t *testing.T, c *circuit) {
			c.from.say(t, c.from.out.Ring.Size/hop.Unit, hop.Header{Seq: 1, Kind: hop.Begin}, 64)
		}, ""}, // which the adapter refuses
		{"more than was credited", func(t *testing.T, c *circuit) {
			for i := range hop.Forth + 1 {
				c.from.say(t, uint32(i), hop.Header{Seq: uint64(i + 1), Kind: hop.Begin}, 64)
			}
		}, "before it are not freed"},
		{"a credit for nothing", func(t *testing.T, c *circuit) { c.to.credit(t, 1, 1) }, "of 0 frames sent 1 were freed"},
		{"more delivered than sent", func(t *testing.T, c *circuit) { c.from.credit(t, 0, 5) }, "of 0 frames sent 0 were freed, after 0, and 5 delivered"},
		{"a frame back before its turn", func(t *testing.T, c *circuit) { c.to.say(t, 0, hop.Header{Seq: 9, Kind: hop.Grant}, 64) }, "frame 9 arrived"},
	} {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			p := newPlace(t)
			e := newEngine(t, 16<<20)
			other := newCircuit(t, p, e)
			c := newCircuit(t, p, e)
			tt.say(t, c)
			transporttest.Await(t, "the circuit's end", func() bool {
				c.from.poll(t, func(hop.Work, *ibv.WC) {})
				c.to.poll(t, func(hop.Work, *ibv.WC) {})
				return c.over() != nil
			})
			if err := c.over(); !strings.Contains(err.Error(), tt.want) {
				t.Errorf("it ended with %v, want %q", err, tt.want)
			}
			transporttest.Await(t, "its memory", func() bool { return e.Circuits() == 1 })
			if err := other.over(); err != nil {
				t.Errorf("another circuit ended with %v", err)
			}
			other.joint.Drop(errors.New("the test is over"))
			transporttest.Await(t, "the last circuit", func() bool { return e.Circuits() == 0 })
		}))
	}
}

// A receiver that sends no credits stops its sender at the end of the ring, and at the limit of frames. Sending
// continues with the credits that arrive.
func TestBackpressure(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		p := newPlace(t)
		c := newCircuit(t, p, newEngine(t, 256<<20))
		c.from.out = hop.NewWindow(c.from.out.Ring, hop.Forth, hop.ForthUndelivered)
		sent, headers := 0, 0
		send := func() {
			for {
				const length = 100 << 10
				place, ok := c.from.out.Take(hop.HeaderSize + length)
				if !ok {
					return
				}
				sent++
				c.from.say(t, place, hop.Header{Seq: uint64(sent), Kind: hop.Begin, Length: length}, hop.HeaderSize+length)
			}
		}
		look := func() {
			c.from.poll(t, func(w hop.Work, wc *ibv.WC) {
				imm, ok := hop.Imm(wc)
				switch {
				case w == hop.WorkFrame:
					c.from.out.Complete()
				case w == hop.WorkRecv && ok:
					if err := c.from.out.HandleCredit(imm); err != nil {
						t.Fatal(err)
					}
				}
			})
			c.to.poll(t, func(w hop.Work, wc *ibv.WC) {
				if w == hop.WorkRecv && wc.ByteLen == hop.HeaderSize {
					headers++
				}
			})
			if err := c.over(); err != nil {
				t.Fatal(err)
			}
		}
		send()
		full := sent
		if full != 10 {
			t.Errorf("%d frames of 100 KiB fit a ring of %d", full, c.from.out.Ring.Size)
		}
		transporttest.Await(t, "the headers", func() bool { look(); return headers == full && c.from.out.Done == uint64(full) })
		if c.from.out.Freed != 0 {
			t.Errorf("%d frames were freed that nobody has read", c.from.out.Freed)
		}
		c.to.credit(t, 3, 3)
		transporttest.Await(t, "a credit", func() bool { look(); return c.from.out.Freed == 3 && c.from.out.Delivered == 3 })
		send()
		transporttest.Await(t, "more headers", func() bool { look(); return headers == sent })
		if sent != full+3 {
			t.Errorf("%d frames went on after a credit for 3", sent-full)
		}
	})
}

// As memory fills up, circuits get smaller rings, and then none. Circuits that end release their memory. A ring is not
// larger than the rings before it.
func TestMemory(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		p := newPlace(t)
		e := newEngine(t, 3<<20)
		leg := relay.Leg{Port: p.port, From: p.from, To: p.from.Addr, Name: "there"}
		begin := func(room uint32) (relay.Relayed, error) {
			ask := &handshake.CircuitOpen{Kind: handshake.LaneVerbs, Room: room}
			p.port.Half(&ask.Half, p.from, 1, 1)
			return e.Begin(ask, relay.HopPair{In: leg, Out: leg, Last: true, Ended: func(error) {}})
		}
		var joints []relay.Relayed
		last := uint32(hop.MaxRing)
		for {
			j, err := begin(0)
			if err != nil {
				if want := "NCCL_MESH_RELAY_MEMORY"; !strings.Contains(err.Error(), want) {
					t.Errorf("refused with %v, want %q", err, want)
				}
				break
			}
			joints = append(joints, j)
			o := j.Prev()
			if o.Room != o.Write.Size || o.Room > last || o.Room < hop.MinRing {
				t.Fatalf("a ring of %d, room %d, after one of %d", o.Write.Size, o.Room, last)
			}
			last = o.Room
		}
		if last != hop.MinRing || len(joints) < 20 {
			t.Errorf("%d circuits, the last of which has a ring of %d", len(joints), last)
		}
		for _, j := range joints {
			j.Drop(errors.New("enough"))
		}
		transporttest.Await(t, "the circuits' end", func() bool { return e.Circuits() == 0 })
		j, err := begin(hop.MinRing)
		if err != nil {
			t.Fatal(err)
		}
		if o := j.Prev(); o.Room != hop.MinRing {
			t.Errorf("a ring of %d behind one of %d", o.Room, hop.MinRing)
		}
		if _, err := begin(hop.MinRing - 1); err == nil {
			t.Error("a ring of less than the least")
		}
	})
}

// Close of a Forwarder tears down its circuits, connected or not.
func TestClose(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		p := newPlace(t)
		e := engine.New(engine.Config{Log: slog.New(slog.DiscardHandler), Memory: 64 << 20})
		for range 20 { // more than share a completion queue
			newCircuit(t, p, e)
		}
		leg := relay.Leg{Port: p.port, From: p.from, To: p.from.Addr}
		ask := &handshake.CircuitOpen{Kind: handshake.LaneVerbs}
		p.port.Half(&ask.Half, p.from, 1, 1)
		how := relay.HopPair{In: leg, Out: leg, Last: true}
		if _, err := e.Begin(ask, how); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if n := e.Circuits(); n != 0 {
			t.Errorf("%d circuits are left", n)
		}
		if _, err := e.Begin(ask, how); err == nil {
			t.Error("an engine that has ended takes a circuit")
		}
	})
}
