package onesided_test

import (
	"bytes"
	"testing"
	"time"

	"ncclmesh/ibv"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/onesided"
)

// A side is one process of a pair.
type side struct {
	space  *onesided.Space
	peer   *onesided.Peer
	window *onesided.Window
	mem    *ibv.Memory
	b      []byte
}

// size is the size of each side's window.
const size = 4 << 20

// overLanes runs a test on two processes with a window each, over lanes of every kind.
func overLanes(t *testing.T, f func(t *testing.T, a, b *side)) {
	for _, tt := range []struct {
		name  string
		kinds []lane.Kind
	}{
		{"queue pairs", []lane.Kind{lane.Verbs, lane.Verbs}},
		{"sockets", []lane.Kind{lane.TCP, lane.TCP}},
		{"a socket and a queue pair", []lane.Kind{lane.TCP, lane.Verbs}},
		{"circuits", []lane.Kind{lane.Circuit, lane.Circuit}},
	} {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			from, to := transporttest.New(t), transporttest.New(t)
			s1, r1 := transporttest.ConnectOver(t, from, to, tt.kinds...)
			s2, r2 := transporttest.ConnectOver(t, to, from, tt.kinds...)
			a, b := newSide(t, s1, r2), newSide(t, s2, r1)
			await(t, "the windows", a, b, func() bool {
				_, here := a.peer.Window(1)
				_, there := b.peer.Window(1)
				return here && there
			})
			f(t, a, b)
			for _, s := range []*side{a, b} {
				if err := s.peer.Close(); err != nil {
					t.Error(err)
				}
				if err := s.space.Close(); err != nil {
					t.Error(err)
				}
			}
		}))
	}
}

func newSide(t *testing.T, s *conn.Sender, r *conn.Receiver) *side {
	t.Helper()
	x := &side{space: onesided.New()}
	x.mem, x.b = transporttest.Memory(t, size)
	var err error
	if x.window, err = x.space.Register(lane.HostMemory, x.mem.Addr(), size); err != nil {
		t.Fatal(err)
	}
	if x.peer, err = x.space.Connect(s, r); err != nil {
		t.Fatal(err)
	}
	return x
}

// await lets both sides work until f returns true.
func await(t *testing.T, what string, a, b *side, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); {
		a.space.Progress()
		b.space.Progress()
		for _, s := range []*side{a, b} {
			if err := s.peer.Err(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
		transporttest.WorldOf(t).Sleep(time.Microsecond)
	}
}

// done waits until an operation of a is done.
func done(t *testing.T, what string, a, b *side, op onesided.Op, err error) {
	t.Helper()
	if op == 0 || err != nil {
		t.Fatalf("%s: operation %d: %v", what, op, err)
	}
	await(t, what, a, b, func() bool {
		ok, err := a.peer.Done(op)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return ok
	})
}

// When a signal is seen, the bytes of the put before it are there; and the put is done when the bytes are.
func TestPutSignal(t *testing.T) {
	overLanes(t, func(t *testing.T, a, b *side) {
		word, err := b.window.Word(size - 8)
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range []int{1, 8, 1000, 64 << 10, 1 << 20, 2<<20 + 77} {
			transporttest.Fill(a.b[:n], i+1)
			op, err := a.peer.PutSignal(1, 128, a.window, 0, uint64(n), onesided.Signal{Window: 1, Do: onesided.SignalInc, Offset: size - 8})
			if op == 0 || err != nil {
				t.Fatal(op, err)
			}
			await(t, "the signal", a, b, func() bool { return word.Load() == uint64(i+1) })
			if !bytes.Equal(a.b[:n], b.b[128:128+n]) {
				t.Fatalf("the bytes differ when the signal of a put of %d bytes is seen", n)
			}
			done(t, "put and signal", a, b, op, nil)
		}
	})
}

// A get brings the peer's bytes.
func TestGet(t *testing.T) {
	overLanes(t, func(t *testing.T, a, b *side) {
		transporttest.Fill(b.b[:1<<20], 7)
		for _, n := range []int{0, 8, 3000, 1 << 20} {
			clear(a.b)
			op, err := a.peer.Get(1, 0, a.window, 64, uint64(n))
			done(t, "get", a, b, op, err)
			if !bytes.Equal(b.b[:n], a.b[64:64+n]) {
				t.Fatalf("the bytes of a get of %d differ", n)
			}
		}
	})
}
