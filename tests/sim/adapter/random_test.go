package adapter_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"ncclmesh/ibv"
	"ncclmesh/tests/sim/adapter"
	"ncclmesh/tests/sim/bus"
)

// Random traffic in rings of nodes, with losses, slow ports and cables that flap: what completes well is where it belongs,
// completions come in order, each request completes once, and one seed is one history.
func TestRandom(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 5
	}
	happened := map[string]int{}
	for seed := range seeds {
		first := bus.Run(t, seed, func(t *testing.T, b *bus.Bus) { random(t, b, happened) })
		if t.Failed() {
			return
		}
		if seed%10 == 0 {
			if again := bus.Run(t, seed, func(t *testing.T, b *bus.Bus) { random(t, b, map[string]int{}) }); again != first {
				t.Fatalf("seed %d was %+v, then %+v", seed, first, again)
			}
		}
	}
	for _, what := range []string{"lost request", "lost acknowledgement", "lost read data", "cut request", "time-out", "refused: out of order",
		"refused: receiver not ready", "repeated after it was done", "failed: IBV_WC_RETRY_EXC_ERR", "event PORT_ERR", "event PORT_ACTIVE"} {
		if happened[what] == 0 {
			t.Errorf("%q has never happened: the runs were not nasty enough; they had %v", what, happened)
		}
	}
}

func random(t *testing.T, b *bus.Bus, happened map[string]int) {
	const nodes = 3
	w := newWorld(t, b, nodes)
	l := w.fabric.Connect(adapter.LinkConfig{Rate: 1e9, Latency: 5 * time.Microsecond, Jitter: 3 * time.Microsecond}, w.ports...)
	var ends []*end
	for i := range nodes { // a ring of queue pairs
		x, y := w.end(i), w.end((i+1)%nodes)
		x.timeout, y.timeout, x.retry, y.retry = 8, 8, 7, 7
		w.connect(x, y)
		ends = append(ends, x, y)
	}
	stop := make(chan struct{})
	var faults, traffic sync.WaitGroup
	trouble := b.Source("trouble")
	faults.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			trouble.Sleep(trouble.Between(10*time.Microsecond, 2*time.Millisecond))
			switch p := w.ports[trouble.IntN(nodes)]; trouble.IntN(6) {
			case 0:
				p.Lose(adapter.Loss{Data: trouble.Float64() / 5, Acks: trouble.Float64() / 5})
			case 1, 2:
				p.Lose(adapter.Loss{})
			case 3:
				p.Slow(int64(trouble.IntN(1e9)))
			case 4:
				p.Off(trouble.Chance(0.3))
			case 5:
				l.Cut(trouble.Chance(0.2))
			}
		}
	})
	for i, e := range ends {
		s := b.Source(fmt.Sprintf("thread %d", i))
		traffic.Go(func() { drive(t, s, e) })
	}
	traffic.Wait()
	close(stop)
	faults.Wait()
	for _, e := range ends {
		e.close()
	}
	for what, n := range w.fabric.Counts() {
		happened[what] += n
	}
}

// drive posts random requests at an end until it has done enough, or until it breaks. The two ends write to each other's
// upper half and read from it.
func drive(t *testing.T, s *bus.Source, e *end) {
	const half = bufSize / 2
	posted, done := 0, 0
	type request struct {
		op        uint32
		at, n, to int
	}
	var open []request
	pattern(e.buf[:half/2], e.node)
	for done < 60 {
		if posted < 60 && len(open) < 8 && s.Chance(0.7) {
			r := request{op: []uint32{write, writeImm, read}[s.IntN(3)], n: s.LogUniform(0, 20_000)}
			r.at, r.to = s.IntN(half/2-r.n), half+posted%8*20_000
			if r.op == read { // into the own upper half, from what the peer does not change
				r.at, r.to = half+half/2+posted%8*20_000, s.IntN(half/2-r.n)
			}
			if err := e.post(posted, r.op, r.at, r.n, r.to); err != nil {
				t.Errorf("%d: %v", posted, err)
				return
			}
			open = append(open, r)
			posted++
		}
		if s.Chance(0.4) {
			e.recv[0] = ibv.RecvWR{WRID: 1 << 32}
			_, _ = e.qp.PostRecv(&e.recv[0]) // which may be full
		}
		n, err := e.cq.Poll(e.wc)
		if err != nil {
			t.Error(err)
			return
		}
		for i := range n {
			wc := &e.wc[i]
			if wc.WRID == 1<<32 {
				continue
			}
			if wc.WRID != uint64(done) {
				t.Errorf("completion of %d, want %d", wc.WRID, done)
				return
			}
			r := open[0]
			open = open[1:]
			done++
			if wc.Status != ibv.IBV_WC_SUCCESS {
				return // broken, and the rest is flushed
			}
			from, to := e.buf[r.at:r.at+r.n], e.peer.buf[r.to:r.to+r.n]
			if !bytes.Equal(from, to) {
				t.Errorf("request %d of %d bytes by operation %d: bytes differ", done-1, r.n, r.op)
				return
			}
		}
		s.Sleep(s.Between(0, 50*time.Microsecond))
	}
}
