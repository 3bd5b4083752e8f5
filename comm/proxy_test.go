package comm_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"ncclmesh/comm"
	"ncclmesh/comm/fifo"
	"ncclmesh/tests/transporttest"
)

// push pushes a trigger, and waits while the FIFO is full.
func push(t *testing.T, x *comm.Connection, trigger fifo.Trigger) (number uint64) {
	t.Helper()
	transporttest.Await(t, "room in the FIFO", func() bool {
		n, ok, err := x.FIFO().Push(&trigger)
		if err != nil {
			t.Fatal(err)
		}
		number = n
		return ok
	})
	return number
}

func launch(t *testing.T, ranks []*rank) {
	t.Helper()
	must(t, each(ranks, func(r *rank) error { return r.LaunchProxies() }))
}

// The triggers of a FIFO are executed in order, however many there are.
func TestProxyExecutesTriggers(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		const n = 300
		ranks, conns, mem := pair(t, 2*n*8)
		launch(t, ranks)
		for i := range n {
			mem[0][i*8] = byte(i*3 + 1)
			push(t, conns[0], fifo.Trigger{Kind: fifo.Put | fifo.Signal, Dst: uint64((n + i) * 8), Src: uint64(i * 8), Size: 8})
		}
		for i := range n {
			if err := conns[1].Wait(time.Minute); err != nil {
				t.Fatal(err)
			}
			if got, want := mem[1][(n+i)*8], byte(i*3+1); got != want {
				t.Fatalf("after signal %d: %d, want %d", i, got, want)
			}
		}
		must(t, each(ranks, func(r *rank) error { return r.StopProxies() }))
	})
}

// MSCCL++'s flush hangs without a signal before it, because only signals complete: a flush alone, and one after puts, are executed.
func TestFlushWithoutSignal(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks, conns, mem := pair(t, 1<<20)
		if err := conns[0].Flush(time.Minute); err != nil {
			t.Errorf("a flush of nothing: %v", err)
		}
		launch(t, ranks)
		n := push(t, conns[0], fifo.Trigger{Kind: fifo.Flush})
		transporttest.Await(t, "a flush of nothing", func() bool { return conns[0].FIFO().Tail() > n })
		transporttest.Fill(mem[0], 1)
		push(t, conns[0], fifo.Trigger{Kind: fifo.Put, Size: 1 << 20})
		n = push(t, conns[0], fifo.Trigger{Kind: fifo.Flush})
		transporttest.Await(t, "the flush", func() bool { return conns[0].FIFO().Tail() > n })
		if !bytes.Equal(mem[0], mem[1]) {
			t.Error("the data has not arrived")
		}
		if code := conns[0].FIFO().Failure(); code != 0 {
			t.Errorf("failure %d", code)
		}
	})
}

// A put of 0 bytes at offset 0 is executed, as any other trigger.
func TestProxyPutsNothing(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks, conns, _ := pair(t, 64)
		launch(t, ranks)
		push(t, conns[0], fifo.Trigger{Kind: fifo.Put})
		n := push(t, conns[0], fifo.Trigger{Kind: fifo.Put | fifo.Signal | fifo.Flush})
		transporttest.Await(t, "the tail", func() bool { return conns[0].FIFO().Tail() == n+1 })
		if err := conns[1].Wait(time.Minute); err != nil {
			t.Error(err)
		}
	})
}

// A trigger that is not inside the buffers, or whose peer is gone, fails the FIFO: nothing later is executed, and no producer
// waits for ever. MSCCL++'s proxy polls on after a completion with an error.
func TestProxyFails(t *testing.T) {
	tests := []struct {
		name string
		bad  fifo.Trigger
		kill bool
		want comm.Result
	}{
		{"beyond the buffer", fifo.Trigger{Kind: fifo.Put | fifo.Signal, Dst: 60, Size: 8}, false, comm.ResultInvalidArgument},
		{"the peer is gone", fifo.Trigger{Kind: fifo.Put | fifo.Signal, Size: 8}, true, comm.ResultRemoteError},
	}
	for _, tt := range tests {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			ranks, conns, mem := pair(t, 64)
			launch(t, ranks)
			if tt.kill {
				ranks[1].killed = true
				ranks[1].runs.Kill()
				transporttest.WorldOf(t).Sleep(20 * time.Second)
			}
			push(t, conns[0], tt.bad)
			var last uint64
			for range 200 {
				last = push(t, conns[0], fifo.Trigger{Kind: fifo.Put | fifo.Signal | fifo.Flush, Size: 8})
			}
			transporttest.Await(t, "the last trigger", func() bool { return conns[0].FIFO().Tail() > last })
			if code := comm.Result(conns[0].FIFO().Failure()); code != tt.want {
				t.Errorf("failure %v, want %v", code, tt.want)
			}
			if n := conns[1].Epoch(); n != 0 || !bytes.Equal(mem[1], make([]byte, 64)) {
				t.Errorf("epoch %d after a failure, memory %v", n, mem[1])
			}
		}))
	}
}

// A FIFO that waits delays no other one.
func TestProxiesAreIndependent(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks := start(t, 3, nil)
		connectAll(t, ranks)
		launch(t, ranks)
		a, err := ranks[0].Connection(1, 0)
		if err != nil {
			t.Fatal(err)
		}
		b, err := ranks[0].Connection(2, 0)
		if err != nil {
			t.Fatal(err)
		}
		ranks[1].killed = true
		ranks[1].runs.Kill() // its peers wait for an answer at first
		first := push(t, a, fifo.Trigger{Kind: fifo.Put | fifo.Flush, Size: 8})
		second := push(t, b, fifo.Trigger{Kind: fifo.Put | fifo.Flush, Size: 8})
		transporttest.Await(t, "the other FIFO", func() bool { return b.FIFO().Tail() > second })
		transporttest.Await(t, "the FIFO of the dead rank", func() bool { return a.FIFO().Tail() > first })
		if a.FIFO().Failure() != uint64(comm.ResultRemoteError) || b.FIFO().Failure() != 0 {
			t.Errorf("failures %d and %d, want 6 and 0", a.FIFO().Failure(), b.FIFO().Failure())
		}
	})
}

func TestLaunchAndStop(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks, conns, _ := pair(t, 64)
		check(t, "stop without launch", ranks[0].StopProxies(), comm.ResultInvalidUsage, "launch them first")
		for round := range 3 {
			launch(t, ranks)
			check(t, "launch twice", ranks[0].LaunchProxies(), comm.ResultInvalidUsage, "already")
			for i := range conns {
				for range 50 { // all are executed before the proxies stop
					push(t, conns[i], fifo.Trigger{Kind: fifo.Signal})
				}
			}
			must(t, each(ranks, func(r *rank) error { return errors.Join(r.StopProxies(), conns[r.number].Flush(time.Minute)) }))
			for i, x := range conns {
				if err := x.Flush(time.Minute); err != nil {
					t.Error(err)
				}
				transporttest.Await(t, "the epoch", func() bool { return x.Epoch() == uint64(50*(round+1)) })
				if tail := x.FIFO().Tail(); tail != uint64(50*(round+1)) {
					t.Error(fmt.Sprint("rank ", i, " has executed ", tail))
				}
			}
		}
	})
}
