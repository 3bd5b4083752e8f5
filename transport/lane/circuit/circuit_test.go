package circuit_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
)

// Messages of every size arrive completely through one, two and four relays, many at once, small and large
// alternating.
func TestThroughRelays(t *testing.T) {
	for _, relays := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(relays), transporttest.Simulated(func(t *testing.T) {
			from, to := transporttest.New(t), transporttest.New(t)
			s, r := transporttest.ConnectThrough(t, from, to, transporttest.NewCircuits(t, relays), lane.Circuit)
			sizes := []int{0, 1, 2047, 2048, 2049, 64 << 10, 8, 1<<20 + 1, 8 << 20, 100, 131456, 131457}
			const room = 8<<20 + 256
			sm, sb := transporttest.Memory(t, room)
			sg := transporttest.Register(t, s, sm)
			transporttest.Fill(sb, relays)
			rm, rb := transporttest.Memory(t, len(sizes)*room)
			rg := transporttest.Register(t, r, rm)
			for round := range 2 {
				clear(rb)
				var all []*conn.Request
				for i, size := range sizes {
					all = append(all, transporttest.Irecv(t, r, transporttest.Buffer(rm, i*room, size+100, 0, rg)))
				}
				for _, size := range sizes {
					all = append(all, transporttest.Isend(t, s, sm, 0, size, 0, sg))
				}
				transporttest.Both(t, "all messages", all...)
				for i, size := range sizes {
					in := rb[i*room : (i+1)*room]
					if !bytes.Equal(in[:size], sb[:size]) || !bytes.Equal(in[size:size+100], make([]byte, 100)) {
						t.Errorf("round %d: a message of %d bytes differs", round, size)
					}
				}
			}
			transporttest.CloseBoth(t, s, r)
		}))
	}
}

// A relay that closes a circuit in the middle of a message costs no byte if there is another lane.
func TestRelayDrops(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		from, to := transporttest.New(t), transporttest.New(t)
		c := transporttest.NewCircuits(t, 2)
		s, r := transporttest.ConnectThrough(t, from, to, c, lane.Circuit, lane.Circuit, lane.TCP)
		const size = 16 << 20
		sm, sb := transporttest.Memory(t, size)
		rm, rb := transporttest.Memory(t, size)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		transporttest.Fill(sb, 1)
		for _, k := range c.Made() {
			clear(rb)
			rq := transporttest.Irecv(t, r, transporttest.Buffer(rm, 0, size, 0, rg))
			sq := transporttest.Isend(t, s, sm, 0, size, 0, sg)
			before := c.Engines[1].Bytes.Value()
			transporttest.Await(t, "the middle of the message", func() bool {
				for _, q := range []*conn.Request{sq, rq} {
					if done, err := q.Test(nil); done || err != nil {
						t.Fatalf("in the middle of the message: %v, %v", done, err)
					}
				}
				return c.Engines[1].Bytes.Value() >= before+size/16
			})
			k.Drop(errors.New("said the test"))
			transporttest.Both(t, "the message", sq, rq)
			if !bytes.Equal(sb, rb) {
				t.Error("the message differs")
			}
		}
		transporttest.Await(t, "the circuits' end", func() bool { return c.Engines[0].Circuits()+c.Engines[1].Circuits() == 0 })
		transporttest.CloseBoth(t, s, r)
	})
}

// Many connections use one relay at a time, and leave no state there.
func TestManyCircuits(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		from, to := transporttest.New(t), transporttest.New(t)
		c := transporttest.NewCircuits(t, 1)
		const size, conns = 300 << 10, 20
		var all []*conn.Request
		var ends []func()
		for i := range conns {
			s, r := transporttest.ConnectThrough(t, from, to, c, lane.Circuit)
			sm, sb := transporttest.Memory(t, size)
			rm, rb := transporttest.Memory(t, size)
			sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
			transporttest.Fill(sb, i)
			all = append(all, transporttest.Irecv(t, r, transporttest.Buffer(rm, 0, size, 0, rg)), transporttest.Isend(t, s, sm, 0, size, 0, sg))
			ends = append(ends, func() {
				if !bytes.Equal(sb, rb) {
					t.Errorf("connection %d: the message differs", i)
				}
				transporttest.CloseBoth(t, s, r)
			})
		}
		if n := c.Engines[0].Circuits(); n != conns {
			t.Errorf("%d circuits, want %d", n, conns)
		}
		transporttest.Both(t, "all messages", all...)
		for _, end := range ends {
			end()
		}
		transporttest.Await(t, "the circuits' end", func() bool { return c.Engines[0].Circuits() == 0 })
	})
}
