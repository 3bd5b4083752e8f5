package rma_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"ncclmesh/ncclnet/rma"
	"ncclmesh/transport/onesided"
)

// everywhere runs a test on all shapes of meshes, over queue pairs and sockets.
func everywhere(t *testing.T, f func(m *mesh)) {
	for _, shape := range slices.Sorted(maps.Keys(shapes)) {
		for _, rdma := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, RDMA %v", shape, rdma), func(t *testing.T) { onMesh(t, shape, rdma, f) })
		}
	}
}

// add is the signal that adds to a word.
func add(word rma.Bytes, by uint64) *rma.Signal {
	return &rma.Signal{Word: word, Do: onesided.SignalAdd, Value: by}
}

// fill writes what rank from sends to rank to in a round.
func fill(b []byte, from, to, round int) {
	for i := range b {
		b[i] = byte(from*31 + to*7 + round*3 + i)
	}
}

// Every rank puts to every rank, itself too, and signals. The receiver calls nothing. When it sees the signal, the bytes are there.
func TestPutSignalAllToAll(t *testing.T) {
	everywhere(t, func(m *mesh) {
		m.open()
		n := len(m.ranks)
		var contexts []*rma.Context
		for _, r := range m.ranks {
			c, err := r.group.NewContext(2)
			if err != nil {
				t.Fatal(err)
			}
			contexts = append(contexts, c)
		}
		want := make([]byte, slot)
		for round, size := range []uint64{1, 8, 4096, slot} {
			type posted struct {
				*rank
				q rma.Request
			}
			var all []posted
			for _, r := range m.ranks {
				for to := range n {
					b, from := r.slot(n + to)
					fill(b, r.number, to, round)
					_, at := r.slot(r.number)
					_, word := r.word(r.number)
					q, err := contexts[r.number].PutSignal(round%2, from, size, at, to, add(word, 1))
					if q == 0 || err != nil {
						t.Fatalf("rank %d to rank %d: request %v, error %v", r.number, to, q, err)
					}
					all = append(all, posted{r, q})
				}
			}
			for _, r := range m.ranks {
				for from := range n {
					word, _ := r.word(from)
					m.await("a signal", func() bool { return word.Load() == uint64(round+1) })
					got, _ := r.slot(from)
					fill(want, from, r.number, round)
					if !bytes.Equal(want[:size], got[:size]) {
						t.Errorf("round %d: rank %d sees the signal of rank %d and not its %d bytes", round, r.number, from, size)
					}
				}
			}
			for _, p := range all {
				p.await("a put with a signal", p.q)
			}
		}
		for _, r := range m.ranks {
			if err := r.group.Err(); err != nil {
				t.Errorf("rank %d: %v", r.number, err)
			}
		}
	})
}

// A get brings the bytes of each rank, and a flush after it is done when they are here.
func TestGet(t *testing.T) {
	everywhere(t, func(m *mesh) {
		m.open()
		n := len(m.ranks)
		for _, r := range m.ranks {
			for to := range n {
				b, _ := r.slot(n + to)
				fill(b, r.number, to, 9)
			}
		}
		for _, r := range m.ranks {
			c, err := r.group.NewContext(1)
			if err != nil {
				t.Fatal(err)
			}
			for from := range n {
				if q, err := c.Flush(0, from); q != 0 || err != nil {
					t.Errorf("a flush with nothing before it: request %v, error %v", q, err)
				}
				_, there := r.slot(n + r.number)
				b, here := r.slot(from)
				get, err := c.Get(0, there, slot, here, from)
				if get == 0 || err != nil {
					t.Fatal(get, err)
				}
				if q, err := c.Flush(0, from); err != nil {
					t.Error(err)
				} else if q != 0 {
					r.await("a flush", q)
				}
				want := make([]byte, slot)
				fill(want, from, r.number, 9)
				if !bytes.Equal(want, b) {
					t.Errorf("rank %d: after the flush the bytes of rank %d are not here", r.number, from)
				}
				r.await("a get", get)
			}
		}
	})
}
