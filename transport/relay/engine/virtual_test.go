package engine_test

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/tests/sim/adapter"
	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/lane/verbs"
	"ncclmesh/transport/relay"
	"ncclmesh/transport/relay/engine"
	"ncclmesh/transport/relay/hop"
	"ncclmesh/transport/topology"
)

// virtualPlace makes a place of a port of a simulated adapter.
func virtualPlace(p *verbs.Port, from topology.Address, d *adapter.Device) (place, *adapter.Device) {
	return place{p, from}, d
}

// The Forwarder works with simulated adapters in virtual time: it waits for hours without events, forwards frames, and
// tears down circuits, without polling the real clock.
func TestVirtualTime(t *testing.T) {
	live := ibv.Live()
	relaying := func(t *testing.T, b *bus.Bus) {
		clock := b.Source("test")
		p, _ := virtualPlace(transporttest.VerbsPort(t, b))
		e := engine.New(engine.Config{Log: slog.New(slog.DiscardHandler), Memory: 64 << 20})
		c := newCircuit(t, p, e)
		other := newCircuit(t, p, e)
		await := func(what string, f func() bool) {
			t.Helper()
			for begun := b.Now(); !f(); clock.Sleep(10 * time.Microsecond) {
				if b.Now()-begun > time.Second {
					t.Fatalf("%s has not come; the circuits: %v, %v", what, c.over(), other.over())
				}
			}
		}
		headers, sent := 0, 0
		for round := range 3 {
			clock.Sleep(time.Hour)
			for range 4 {
				const length = 1000
				place, ok := c.from.out.Take(hop.HeaderSize + length)
				if !ok {
					t.Fatal("no room in the ring")
				}
				sent++
				binary.NativeEndian.PutUint64(c.from.frame[hop.HeaderSize:], uint64(sent))
				c.from.say(t, place, hop.Header{Seq: uint64(sent), Kind: hop.Begin, Length: length}, hop.HeaderSize+length)
				await("a header", func() bool {
					c.from.poll(t, func(w hop.Work, _ *ibv.WC) {
						if w == hop.WorkFrame {
							c.from.out.Complete()
						}
					})
					c.to.poll(t, func(w hop.Work, wc *ibv.WC) {
						if w == hop.WorkRecv && wc.ByteLen >= hop.HeaderSize {
							headers++
						}
					})
					return headers == sent
				})
			}
			c.to.credit(t, uint64(sent), uint64(sent))
			await("a credit", func() bool {
				c.from.poll(t, func(w hop.Work, wc *ibv.WC) {
					if imm, ok := hop.Imm(wc); w == hop.WorkRecv && ok {
						if err := c.from.out.HandleCredit(imm); err != nil {
							t.Fatal(err)
						}
					}
				})
				return c.from.out.Freed == uint64(sent)
			})
			if err := errors.Join(c.over(), other.over()); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		other.joint.Drop(errors.New("enough"))
		await("the end of a circuit", func() bool { return e.Circuits() == 1 })
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	summary := bus.Run(t, 1, relaying)
	if again := bus.Run(t, 1, relaying); again != summary {
		t.Errorf("one seed gave %+v, then %+v", summary, again)
	}
	if summary.Events > 5000 {
		t.Errorf("%d events, most of them while nothing came", summary.Events)
	}
	if len(ibv.Live()) != len(live) {
		t.Errorf("left open: %v, before: %v", ibv.Live(), live)
	}
}

// While the thread destroys a queue pair, or a completion queue is made, which may take long, other goroutines can drop
// circuits, and virtual time advances.
func TestSlowVerbs(t *testing.T) {
	const slow = time.Second
	for _, tt := range []struct {
		name, verb string
		act        func(t *testing.T, c *circuit, begin func())
	}{
		{"destroying", "destroy_qp", func(_ *testing.T, c *circuit, _ func()) { c.joint.Drop(errors.New("enough")) }},
		{"making", "create_cq", func(_ *testing.T, _ *circuit, begin func()) { begin() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bus.Run(t, 1, func(t *testing.T, b *bus.Bus) {
				clock := b.Source("test")
				p, d := virtualPlace(transporttest.VerbsPort(t, b))
				e := engine.New(engine.Config{Log: slog.New(slog.DiscardHandler), Memory: 64 << 20})
				c := newCircuit(t, p, e)
				for range endpointsPerQueue/2 - 1 { // the next needs a completion queue of its own
					newCircuit(t, p, e)
				}
				d.Slow(tt.verb, slow)
				var begun sync.WaitGroup
				tt.act(t, c, func() {
					begun.Go(func() {
						ask := &handshake.CircuitOpen{Kind: handshake.LaneVerbs}
						p.port.Half(&ask.Half, p.from, 1, 1)
						leg := relay.Leg{Port: p.port, From: p.from, To: p.from.Addr}
						if _, err := e.Begin(ask, relay.HopPair{In: leg, Out: leg, Last: true}); err != nil {
							t.Error(err)
						}
					})
				})
				clock.Sleep(slow / 10)
				before := b.Now()
				c.joint.Drop(errors.New("enough"))
				if d := b.Now() - before; d > 0 {
					t.Errorf("to drop a circuit took %v", d)
				}
				clock.Sleep(10 * slow)
				begun.Wait()
				d.Slow(tt.verb, 0)
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// While circuits are torn down on an adapter that takes seconds for that, other circuits forward frames without delay,
// and Close waits for all of them.
func TestSlowEnd(t *testing.T) {
	bus.Run(t, 1, func(t *testing.T, b *bus.Bus) {
		clock := b.Source("test")
		p, d := virtualPlace(transporttest.VerbsPort(t, b))
		e := engine.New(engine.Config{Log: slog.New(slog.DiscardHandler), Memory: 64 << 20})
		c := newCircuit(t, p, e)
		var others []*circuit
		for range 30 {
			others = append(others, newCircuit(t, p, e))
		}
		d.Slow("dereg_mr", time.Second)
		for _, other := range others {
			other.joint.Drop(errors.New("enough"))
		}
		for at := time.Duration(0); at < 3*time.Second; at += 100 * time.Millisecond {
			clock.Sleep(100 * time.Millisecond)
			place, ok := c.from.out.Take(hop.HeaderSize)
			if !ok {
				t.Fatal("no room in the ring")
			}
			c.from.say(t, place, hop.Header{Seq: uint64(at/(100*time.Millisecond)) + 1, Kind: hop.Begin}, hop.HeaderSize)
			clock.Sleep(100 * time.Microsecond)
			came := 0
			c.to.poll(t, func(w hop.Work, wc *ibv.WC) {
				if w == hop.WorkRecv && wc.ByteLen >= hop.HeaderSize {
					came++
				}
			})
			if came != 1 {
				t.Fatalf("%v after the others were dropped, %d of 1 frames came within 100 µs", at, came)
			}
			c.from.poll(t, func(w hop.Work, _ *ibv.WC) {
				if w == hop.WorkFrame {
					c.from.out.Complete()
				}
			})
			c.to.credit(t, c.from.out.Sent, c.from.out.Sent)
			clock.Sleep(100 * time.Microsecond)
			c.from.poll(t, func(w hop.Work, wc *ibv.WC) {
				if imm, ok := hop.Imm(wc); w == hop.WorkRecv && ok {
					if err := c.from.out.HandleCredit(imm); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
		if n := e.Circuits(); n == 1 {
			t.Error("all are down, and the verb is not slow")
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if n := e.Circuits(); n != 0 {
			t.Errorf("%d circuits are left", n)
		}
		d.Slow("dereg_mr", 0)
	})
}

// endpointsPerQueue is how many endpoints share a completion queue.
const endpointsPerQueue = 16
