package board_test

import (
	"errors"
	"testing"
	"unsafe"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/board"
	"ncclmesh/transport/conn"
)

// words returns the board of a connection, as C reads it.
func words(t *testing.T, c interface{ Board(uint64) uintptr }) *board.Words {
	t.Helper()
	addr := c.Board(1 << 44)
	if addr == 0 {
		t.Fatal("no board")
	}
	return *(**board.Words)(unsafe.Pointer(&addr))
}

// take takes a result from the board, as C does.
func take(w *board.Words, q *conn.Request) (sizes []uint32, ok bool) {
	i := q.Index()
	state := w.Answers[i].State.Load()
	if state != q.Generation()<<1|1 {
		return nil, false
	}
	sizes = append(sizes, w.Answers[i].Sizes[:w.Answers[i].N]...)
	w.Consumers[i].Taken.Store(state >> 1)
	return sizes, true
}

// A poll writes all results onto the board. A request whose result C has taken is free again without a call of
// Go.
func TestAnswers(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		s, r := transporttest.Connect(t, transporttest.New(t), transporttest.New(t))
		defer transporttest.CloseBoth(t, s, r)
		sm, _ := transporttest.Memory(t, 4096)
		rm, _ := transporttest.Memory(t, 4096)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		sw, rw := words(t, s), words(t, r)
		if sw.Disabled.Load() != 0 || rw.Disabled.Load() != 0 || sw.Ring.Load() == 0 || rw.Ring.Load() != 0 {
			t.Fatalf("come %d and %d, rings %#x and %#x", sw.Disabled.Load(), rw.Disabled.Load(), sw.Ring.Load(), rw.Ring.Load())
		}
		const rounds, group = 3 * board.Requests, 4
		for n := range rounds {
			var recvs, sends [group]*conn.Request
			for i := range group {
				recvs[i] = transporttest.Irecv(t, r, conn.Buffer{Addr: rm.Addr(), Size: 64, Tag: 5, Region: rg})
				sends[i] = transporttest.Isend(t, s, sm, 0, n%64, 5, sg)
			}
			if head := sw.Head.Load(); head != uint64(n*group+group+1) {
				t.Fatalf("head %d after %d messages", head, n*group+group)
			}
			for _, half := range []struct {
				w    *board.Words
				reqs [group]*conn.Request
			}{{sw, sends}, {rw, recvs}} {
				// Only the last request is tested in Go; the others are not.
				polls := half.w.Polls.Load()
				sizes := transporttest.Done(t, "the last", half.reqs[group-1])
				if sizes != (conn.Sizes{uint32(n % 64)}) {
					t.Fatalf("sizes %v of %d bytes", sizes, n%64)
				}
				if half.w.Polls.Load() == polls {
					t.Fatal("polls are not counted")
				}
				if q := half.reqs[group-1]; q.Outstanding() != 0 {
					t.Fatalf("outstanding in generation %d after its answer", q.Outstanding())
				}
				for _, q := range half.reqs[:group-1] {
					if q.Outstanding() != q.Generation() {
						t.Fatalf("outstanding in generation %d before its answer, want %d", q.Outstanding(), q.Generation())
					}
					got, ok := take(half.w, q)
					if !ok || len(got) != 1 || got[0] != uint32(n%64) {
						t.Fatalf("the board says %v, %v of %d bytes", got, ok, n%64)
					}
					if q.Outstanding() != 0 {
						t.Fatal("outstanding after C took the answer")
					}
				}
			}
		}
	})
}

// A result that is on the board stays valid when the connection fails; all other calls go to Go, because the
// board is disabled.
func TestAnswersHold(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		s, r := transporttest.Connect(t, transporttest.New(t), transporttest.New(t))
		defer transporttest.CloseBoth(t, s, r)
		rm, _ := transporttest.Memory(t, 4096)
		sm, _ := transporttest.Memory(t, 4096)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		rw := words(t, r)
		buf := conn.Buffer{Addr: rm.Addr(), Size: 64, Tag: 5, Region: rg}
		first, second, third := transporttest.Irecv(t, r, buf), transporttest.Irecv(t, r, buf), transporttest.Irecv(t, r, buf)
		for range 2 {
			transporttest.Done(t, "a send", transporttest.Isend(t, s, sm, 0, 8, 5, sg))
		}
		transporttest.Done(t, "the second", second)
		r.Fail(errors.New("a test broke the connection"))
		if rw.Disabled.Load() == 0 {
			t.Error("C may answer for a connection that has failed")
		}
		if _, ok := take(rw, first); !ok {
			t.Error("the first is done no more")
		}
		if _, ok := take(rw, third); ok {
			t.Error("the third is done")
		}
		if ok, err := third.Test(nil); ok || err == nil {
			t.Errorf("the third: %v, %v", ok, err)
		}
	})
}

// Over polled lanes every call goes to Go: C has no board.
func TestPassiveLanesHaveNoBoard(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		s, r := transporttest.PairTCP(t, 1)
		defer transporttest.CloseBoth(t, s, r)
		if s.Board(1<<44) != 0 || r.Board(1<<44) != 0 {
			t.Fatal("C may answer over a socket")
		}
		sm, _ := transporttest.Memory(t, 4096)
		rm, _ := transporttest.Memory(t, 4096)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		rq := transporttest.Irecv(t, r, conn.Buffer{Addr: rm.Addr(), Size: 64, Tag: 5, Region: rg})
		transporttest.Both(t, "the message", transporttest.Isend(t, s, sm, 0, 8, 5, sg), rq)
	})
}
