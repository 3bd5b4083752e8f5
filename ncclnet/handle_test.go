package ncclnet

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
)

func TestHandleParts(t *testing.T) {
	h := newHandle(kindSend, slots-1, 1<<genBits-1)
	q := h.request(maxRequests-1, 1<<requestGenBits-1)
	if h.kind() != kindSend || h.slot() != slots-1 {
		t.Errorf("handle %v: kind %v, slot %d", h, h.kind(), h.slot())
	}
	if q.kind() != kindRequest|kindSend || q.comm() != h || q.requestIndex() != maxRequests-1 {
		t.Errorf("request %v: kind %v, comm %v, index %d", q, q.kind(), q.comm(), q.requestIndex())
	}
	for gen, want := range map[uint64]bool{
		0: false, 1: false, 1<<requestGenBits - 2: false, 1<<requestGenBits - 1: true, 1 << requestGenBits: false,
		5<<requestGenBits - 1: true,
	} {
		if q.hasGeneration(gen) != want {
			t.Errorf("request %v names generation %d: %v", q, gen, !want)
		}
	}
	if q := newHandle(kindRecv, 0, 1).request(0, 0); q <= 1 {
		t.Errorf("the least request is %v", q)
	}
}

func TestTableForgetsWhatIsRemoved(t *testing.T) {
	table := table[int]{kind: kindListen}
	live := map[Handle]*int{}
	var stale []Handle
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		if len(live) < 3000 && r.IntN(3) > 0 {
			v := new(int)
			h, err := table.put(v)
			if err != nil {
				t.Fatal(err)
			}
			if h <= 1 || h.kind() != kindListen || live[h] != nil {
				t.Fatalf("put returned %v", h)
			}
			live[h] = v
			continue
		}
		for h, v := range live {
			got, err := table.remove(h)
			if err != nil || got != v {
				t.Fatalf("remove(%v) = %p, %v; want %p", h, got, err, v)
			}
			delete(live, h)
			stale = append(stale, h)
			break
		}
	}
	for h, v := range live {
		if table.get(h) != v {
			t.Fatalf("get(%v) is not what was put", h)
		}
	}
	for _, h := range stale {
		if table.get(h) != nil {
			t.Fatalf("get(%v) finds something removed", h)
		}
		if _, err := table.remove(h); !errors.Is(err, errArgument) {
			t.Fatalf("remove(%v) again: %v", h, err)
		}
	}
	if got := table.len(); got != len(live) {
		t.Errorf("len %d, want %d", got, len(live))
	}
	all := table.take(func(*int) bool { return true })
	if len(all) != len(live) || table.len() != 0 {
		t.Errorf("took %d of %d, %d left", len(all), len(live), table.len())
	}
}

func TestTableConcurrently(t *testing.T) {
	table := table[Handle]{kind: kindRegion}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				v := new(Handle)
				h, err := table.put(v)
				if err != nil {
					t.Error(err)
					return
				}
				if table.get(h) != v {
					t.Errorf("get(%v) is another's", h)
				}
				if got, err := table.remove(h); got != v || err != nil {
					t.Errorf("remove(%v): %v", h, err)
				}
			}
		})
	}
	wg.Wait()
}

// For any number that NCCL passes, a lookup returns an object or an error.
func FuzzHandles(f *testing.F) {
	f.Add(uint64(0))
	f.Add(uint64(1))
	f.Add(^uint64(0))
	f.Add(uint64(newHandle(kindSend, 0, 1).request(3, 1)))
	f.Add(uint64(0x7f0012345678))
	n := newTestNet(f)
	n.connection(n.init())
	f.Fuzz(func(t *testing.T, h uint64) {
		var sizes Sizes
		if done, r := n.Test(Handle(h), &sizes); done || r != ncclInvalidArgument {
			t.Errorf("Test(%#x): %v, %v", h, done, r)
		}
		n.Iflush(Handle(h), []Buffer{{Size: 1}})
		n.DeregMr(Handle(h), Handle(h))
		n.Accept(Handle(h))
	})
}

// len returns how many handles are in use.
func (t *table[T]) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.gens) - len(t.free)
}
