package comm_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/comm"
	"ncclmesh/comm/fifo"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/onesided"
)

// connectAll gives every two ranks a connection of tag 0.
func connectAll(t *testing.T, ranks []*rank) {
	t.Helper()
	for i, r := range ranks {
		for other := range ranks {
			region, _ := memory(t, 64)
			if other != i {
				if err := r.Connect(other, 0, region); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	must(t, each(ranks, func(r *rank) error { return r.Setup() }))
}

// register registers a buffer of sizes, by rank.
func register(t *testing.T, ranks []*rank, sizes ...int) (buffers []*comm.Buffer, mem [][]byte) {
	t.Helper()
	buffers, mem = make([]*comm.Buffer, len(ranks)), make([][]byte, len(ranks))
	regions := make([]comm.Region, len(ranks))
	for i := range ranks {
		regions[i], mem[i] = memory(t, sizes[i])
	}
	must(t, each(ranks, func(r *rank) (err error) {
		buffers[r.number], err = r.Register(regions[r.number])
		return err
	}))
	return buffers, mem
}

// MSCCL++'s mscclppRegisteredBufferWrite writes on every connection: a write has to go to the rank that it names, and no other.
func TestWritesGoToOneRank(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks := start(t, 3, nil)
		connectAll(t, ranks)
		buffers, mem := register(t, ranks, 4096, 4096, 8192)
		transporttest.Fill(mem[0][:100], 1)
		err := errors.Join(
			buffers[0].Write(2, 8000, buffers[0], 0, 100),
			buffers[0].Signal(2, 8, onesided.SignalAdd, 5),
			buffers[2].Wait(8, 5, time.Minute),
			buffers[0].Flush(2, time.Minute),
		)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(mem[2][8000:8100], mem[0][:100]) {
			t.Error("the bytes differ")
		}
		if !bytes.Equal(mem[1], make([]byte, 4096)) {
			t.Error("rank 1 was written to")
		}
		if a, b := buffers[0].Size(2), buffers[2].Size(0); a != 8192 || b != 4096 {
			t.Errorf("sizes %d and %d, want 8192 and 4096", a, b)
		}
		must(t, each(ranks, func(r *rank) error { return buffers[r.number].Deregister() }))
		check(t, "a second time", buffers[0].Deregister(), comm.ResultInvalidUsage, "deregistered before")
		check(t, "a write to it", buffers[0].Write(2, 0, buffers[0], 0, 8), comm.ResultInvalidUsage, "deregistered before")
		check(t, "a signal in it", buffers[0].Signal(2, 0, onesided.SignalInc, 0), comm.ResultInvalidUsage, "deregistered before")
		check(t, "a wait in it", buffers[0].Wait(0, 0, time.Minute), comm.ResultInvalidUsage, "deregistered before")
	})
}

func TestRead(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks := start(t, 2, nil)
		connectAll(t, ranks)
		buffers, mem := register(t, ranks, 1<<20, 1<<20)
		transporttest.Fill(mem[1], 9)
		if err := errors.Join(buffers[0].Read(1, 1000, buffers[0], 5, 1<<19), buffers[0].Flush(1, time.Minute)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(mem[0][5:5+1<<19], mem[1][1000:1000+1<<19]) {
			t.Error("the bytes differ")
		}
	})
}

// Several ranks may add to one word; set, add and increment change it.
func TestSignalWords(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks := start(t, 3, nil)
		connectAll(t, ranks)
		buffers, _ := register(t, ranks, 64, 64, 64)
		must(t, each(ranks[1:], func(r *rank) error {
			b := buffers[r.number]
			for range 20 {
				if err := errors.Join(b.Signal(0, 56, onesided.SignalInc, 0), b.Signal(0, 56, onesided.SignalAdd, 9)); err != nil {
					return err
				}
			}
			return b.Flush(0, time.Minute)
		}))
		if err := buffers[0].Wait(56, 400, time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(buffers[1].Signal(0, 0, onesided.SignalSet, 1<<40), buffers[0].Wait(0, 1<<40, time.Minute)); err != nil {
			t.Fatal(err)
		}
		got := [2]uint64{}
		for i, offset := range []uint64{0, 56} {
			var err error
			if got[i], err = buffers[0].Load(offset); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff([2]uint64{1 << 40, 400}, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestBadBufferArguments(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks := start(t, 3, nil)
		region, _ := memory(t, 64)
		for i := range 2 { // rank 2 has no connection
			if err := ranks[i].Connect(1-i, 0, region); err != nil {
				t.Fatal(err)
			}
		}
		must(t, each(ranks, func(r *rank) error { return r.Setup() }))
		buffers, mem := register(t, ranks, 100, 100, 100)
		b := buffers[0]
		_, load := b.Load(96)
		for _, tt := range []struct {
			what  string
			err   error
			want  comm.Result
			words []string
		}{
			{"beyond the remote buffer", b.Write(1, 99, b, 0, 2), comm.ResultInvalidArgument, []string{"2 bytes at offset 99 of the buffer of rank 1, which has 100 bytes"}},
			{"beyond the local buffer", b.Write(1, 0, b, 99, 2), comm.ResultInvalidArgument, []string{"of the local buffer"}},
			{"a rank that is none", b.Write(3, 0, b, 0, 1), comm.ResultInvalidArgument, []string{"rank 3"}},
			{"a rank without a connection", b.Write(2, 0, b, 0, 1), comm.ResultInvalidUsage, []string{"no connection to rank 2"}},
			{"reading beyond", b.Read(1, 101, b, 0, 0), comm.ResultInvalidArgument, []string{"of the buffer of rank 1"}},
			{"a word out of range", b.Signal(1, 96, onesided.SignalInc, 0), comm.ResultInvalidArgument, []string{"8 bytes at offset 96", "100 bytes"}},
			{"a word that is not aligned", b.Signal(1, 4, onesided.SignalInc, 0), comm.ResultInvalidArgument, []string{"offset 4", "multiple of 8"}},
			{"an operation that is none", b.Signal(1, 0, 0, 0), comm.ResultInvalidArgument, []string{"operation 0"}},
			{"loading a word out of range", load, comm.ResultInvalidArgument, []string{"offset 96"}},
			{"waiting for a word out of range", b.Wait(1<<40, 1, 0), comm.ResultInvalidArgument, []string{"1099511627776"}},
			{"waiting in vain", b.Wait(0, 1, time.Second), comm.ResultInProgress, []string{"the word at offset 0 has not become 1 within 1s"}},
		} {
			check(t, tt.what, tt.err, tt.want, tt.words...)
		}
		if !bytes.Equal(mem[1], make([]byte, 100)) {
			t.Error("rank 1 was written to")
		}
	})
}

// A rank that cannot register its memory is an error on all ranks, which can register again.
func TestRegisterFailsOnOneRank(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks := start(t, 2, nil)
		connectAll(t, ranks)
		region, _ := memory(t, 64)
		errs := each(ranks, func(r *rank) error {
			own := region
			if r.number == 1 {
				own.Addr = 0
			}
			_, err := r.Register(own)
			return err
		})
		check(t, "rank 0", errs[0], comm.ResultRemoteError, "rank 1 could not register its buffer", "64 bytes at 0x0")
		check(t, "rank 1", errs[1], comm.ResultInvalidArgument, "64 bytes at 0x0")
		register(t, ranks, 64, 64)
	})
}

// A rank that has deregistered its buffer alone, which a time-out makes possible, is not written to: each request says that the memory is gone.
func TestBufferIsGone(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks := start(t, 2, nil)
		connectAll(t, ranks)
		buffers, mem := register(t, ranks, 64, 64)
		if err := ranks[1].process.SetBootstrapTimeout(time.Second); err != nil {
			t.Fatal(err)
		}
		check(t, "rank 1 alone", buffers[1].Deregister(), comm.ResultRemoteError, "rank 0 has not made the call within 1s")
		transporttest.WorldOf(t).Sleep(time.Second) // the peer was told
		b := buffers[0]
		for _, tt := range []struct {
			what string
			err  error
		}{
			{"write: ", b.Write(1, 0, b, 0, 8)}, {"read: ", b.Read(1, 0, b, 0, 8)}, {"signal: ", b.Signal(1, 0, onesided.SignalInc, 0)},
		} {
			check(t, tt.what, tt.err, comm.ResultInvalidUsage, tt.what, "the peer no longer has the window",
				"rank 1 has deregistered its buffer: all ranks have to deregister it together, when none uses it any more")
		}
		if !bytes.Equal(mem[1], make([]byte, 64)) {
			t.Error("rank 1 was written to")
		}
		if err := b.Flush(1, time.Minute); err != nil {
			t.Error(err)
		}
	})
}

// A rank that waits for a signal in its buffer gets an error when a rank dies that can signal there. It waits on when another one dies,
// to which it was connected after Register.
func TestRankDiesInBufferWait(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks := start(t, 3, nil)
		connect := func(a, b int) {
			t.Helper()
			for _, ends := range [][2]int{{a, b}, {b, a}} {
				region, _ := memory(t, 64)
				if err := ranks[ends[0]].Connect(ends[1], 0, region); err != nil {
					t.Fatal(err)
				}
			}
			must(t, each(ranks, func(r *rank) error { return r.Setup() }))
		}
		kill := func(r *rank) {
			r.killed = true
			r.runs.Kill()
			transporttest.WorldOf(t).Sleep(20 * time.Second)
		}
		connect(0, 1)
		buffers, _ := register(t, ranks, 64, 64, 64)
		waited := make(chan error)
		go func() { waited <- buffers[0].Wait(0, 1, time.Minute) }()
		connect(0, 2)
		kill(ranks[2])
		if err := errors.Join(buffers[1].Signal(0, 0, onesided.SignalInc, 0), <-waited); err != nil {
			t.Error(err)
		}
		go func() { waited <- buffers[0].Wait(0, 2, time.Minute) }()
		kill(ranks[1])
		check(t, "wait", <-waited, comm.ResultRemoteError, "wait: ", "peer gone")
		if err := buffers[0].Wait(0, 1, time.Minute); err != nil {
			t.Errorf("waiting for the signal that came before: %v", err)
		}
	})
}

// MSCCL++ of 2023 allows 64 connections, which limit the registered buffers too.
func TestManyConnectionsAndBuffers(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		const many = 150
		ranks := start(t, 2, nil)
		for i, r := range ranks {
			for tag := range many {
				region, _ := memory(t, 8)
				if err := r.Connect(1-i, tag, region); err != nil {
					t.Fatal(err)
				}
			}
		}
		must(t, each(ranks, func(r *rank) error { return r.Setup() }))
		var last []*comm.Buffer
		var mem [][]byte
		for range many {
			last, mem = register(t, ranks, 8, 8)
		}
		mem[0][3] = 42
		must(t, each(ranks, func(r *rank) error {
			if r.number == 0 {
				if err := errors.Join(last[0].Write(1, 0, last[0], 0, 8), last[0].Flush(1, time.Minute)); err != nil {
					return err
				}
			}
			for _, x := range r.Connections() {
				if err := errors.Join(x.Signal(), x.Wait(time.Minute)); err != nil {
					return err
				}
			}
			return nil
		}))
		if mem[1][3] != 42 {
			t.Error(fmt.Sprint("the last buffer has ", mem[1]))
		}
	})
}

// MSCCL++ of 2023 has sizes and offsets of 32 bits.
func TestOffsetsOf64Bits(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		const size, far = 6 << 30, 5<<30 + 8
		ranks, conns, mem := pair(t, size) // memory that is not touched costs nothing
		launch(t, ranks)
		copy(mem[0][far:], "direct")
		if err := errors.Join(conns[0].PutWithSignal(far+64, far, 8), conns[1].Wait(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if got := string(mem[1][far+64 : far+70]); got != "direct" {
			t.Errorf("behind 5 GiB: %q", got)
		}
		copy(mem[0][far:], "pushed")
		push(t, conns[0], fifo.Trigger{Kind: fifo.Put | fifo.Signal, Dst: far + 128, Src: far, Size: 8})
		if err := conns[1].Wait(time.Minute); err != nil {
			t.Fatal(err)
		}
		if got := string(mem[1][far+128 : far+134]); got != "pushed" {
			t.Errorf("by the FIFO: %q", got)
		}
		if err := errors.Join(conns[1].Get(far-32, far, 8), conns[1].Flush(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if got := string(mem[1][far-32 : far-26]); got != "pushed" {
			t.Errorf("by a get: %q", got)
		}
	})
}
