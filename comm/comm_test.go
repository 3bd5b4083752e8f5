package comm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/comm"
	"ncclmesh/tests/sim/world"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// A rank is a rank of a simulated job: a process on one of the two machines, the first on machine a.
type rank struct {
	*comm.Comm
	process *comm.Process
	runs    *world.Process
	number  int
	killed  bool
}

// newProcess starts a process.
func newProcess(t *testing.T, settings map[string]string) (*comm.Process, *world.Process) {
	t.Helper()
	runs, machine := transporttest.WorldOf(t).Start()
	return comm.NewProcess(comm.Host{
		Getenv: func(name string) string { return settings[name] }, Environ: func() []string { return nil }, Machine: machine,
		Log: func(level slog.Level, text string) { t.Logf("%s: %v %s", runs.Name, level, text) },
	}), runs
}

// start starts a job of n ranks, which is closed when the test ends.
func start(t *testing.T, n int, settings map[string]string) []*rank {
	t.Helper()
	ranks := make([]*rank, n)
	for i := range ranks {
		p, runs := newProcess(t, settings)
		ranks[i] = &rank{process: p, runs: runs, number: i}
	}
	join(t, ranks)
	return ranks
}

// join makes processes the ranks of a job, which is closed when the test ends.
func join(t *testing.T, ranks []*rank) {
	t.Helper()
	id, err := ranks[0].process.UniqueID()
	if err != nil {
		t.Fatal(err)
	}
	must(t, each(ranks, func(r *rank) (err error) {
		r.Comm, err = r.process.InitRankFromID(len(ranks), id, r.number)
		return err
	}))
	t.Cleanup(func() {
		for i, err := range each(ranks, func(r *rank) error { return r.Close() }) {
			if err != nil && !ranks[i].killed {
				t.Errorf("rank %d closes: %v", i, err)
			}
		}
	})
}

// each calls f for every rank at once, and waits for all.
func each(ranks []*rank, f func(r *rank) error) []error {
	type result struct {
		i   int
		err error
	}
	results := make(chan result, len(ranks))
	for i, r := range ranks {
		go func() { results <- result{i, f(r)} }()
	}
	errs := make([]error, len(ranks))
	for range ranks {
		r := <-results
		errs[r.i] = r.err
	}
	return errs
}

// must fails the test if a rank has an error.
func must(t *testing.T, errs []error) {
	t.Helper()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", i, err)
		}
	}
}

// check fails the test if the error has another result, or its text has not all the words.
func check(t *testing.T, what string, err error, want comm.Result, words ...string) {
	t.Helper()
	if got := comm.ResultOf(err); got != want {
		t.Errorf("%s: error %v, which is %q; want %q", what, err, got, want)
		return
	}
	for _, w := range words {
		if !strings.Contains(fmt.Sprint(err), w) {
			t.Errorf("%s: error %q, want %q in it", what, err, w)
		}
	}
}

// memory makes memory, which is freed after the transports have ended.
func memory(t *testing.T, size int) (comm.Region, []byte) {
	t.Helper()
	m, b := transporttest.Memory(t, size)
	return comm.Region{Kind: lane.HostMemory, Addr: m.Addr(), Length: uint64(size)}, b[:size]
}

// alone starts a job of one rank in a process, and returns its ID.
func alone(t *testing.T, p *comm.Process) (comm.ID, *comm.Comm) {
	t.Helper()
	id, err := p.UniqueID()
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.InitRankFromID(1, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	return id, c
}

// pair starts a job of two ranks with one connection, of tag 7, between buffers of a size.
func pair(t *testing.T, size int) (ranks []*rank, conns [2]*comm.Connection, mem [2][]byte) {
	t.Helper()
	return pairOver(t, size, nil)
}

// pairOver is pair with settings.
func pairOver(t *testing.T, size int, settings map[string]string) (ranks []*rank, conns [2]*comm.Connection, mem [2][]byte) {
	t.Helper()
	ranks = start(t, 2, settings)
	for i, r := range ranks {
		region, b := memory(t, size)
		mem[i] = b
		if err := r.Connect(1-i, 7, region); err != nil {
			t.Fatal(err)
		}
	}
	must(t, each(ranks, func(r *rank) (err error) {
		if err := r.Setup(); err != nil {
			return err
		}
		conns[r.number], err = r.Connection(1-r.number, 7)
		return err
	}))
	return ranks, conns, mem
}

// A put with a signal, and the answer, over RDMA, over sockets whose data is checked, and over sockets whose data is not.
func TestPutSignalWait(t *testing.T) {
	for name, settings := range map[string]map[string]string{
		"rdma": nil, "checked": {"NCCL_MESH_TRANSPORT": "tcp", "NCCL_MESH_TCP_CHECK": "1"}, "tcp": {"NCCL_MESH_TRANSPORT": "tcp", "NCCL_MESH_TCP_CHECK": "0"},
	} {
		t.Run(name, transporttest.Simulated(func(t *testing.T) { putSignalWait(t, settings) }))
	}
}

func putSignalWait(t *testing.T, settings map[string]string) {
	const size = 3 << 20
	ranks, conns, mem := pairOver(t, size, settings)
	must(t, each(ranks, func(r *rank) error {
		x, own := conns[r.number], mem[r.number]
		const half = size / 2
		for round := range 5 {
			if r.number == 0 {
				transporttest.Fill(own[:half], round)
				if err := errors.Join(x.PutWithSignal(half, 0, half), x.Wait(time.Minute)); err != nil {
					return err
				}
				continue
			}
			if err := x.Wait(time.Minute); err != nil {
				return err
			}
			want := make([]byte, half)
			transporttest.Fill(want, round)
			if !bytes.Equal(want, own[half:]) {
				return fmt.Errorf("round %d: the bytes differ", round)
			}
			if err := x.Signal(); err != nil {
				return err
			}
		}
		return x.Flush(time.Minute)
	}))
	if conns[0].Epoch() != 5 || conns[1].Epoch() != 5 {
		t.Errorf("epochs %d and %d, want 5", conns[0].Epoch(), conns[1].Epoch())
	}
}

func TestGet(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks, conns, mem := pair(t, 1<<20)
		transporttest.Fill(mem[1], 3)
		must(t, each(ranks[:1], func(*rank) error {
			return errors.Join(conns[0].Get(100, 200, 1000), conns[0].Flush(time.Minute))
		}))
		if diff := cmp.Diff(mem[1][200:1200], mem[0][100:1100]); diff != "" {
			t.Error(diff)
		}
	})
}

// A signal after IncrementEpoch raises the epoch by two.
func TestIncrementEpoch(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		_, conns, _ := pair(t, 8)
		conns[0].IncrementEpoch()
		if err := errors.Join(conns[0].Signal(), conns[1].Wait(time.Minute), conns[1].Wait(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if n := conns[1].Epoch(); n != 2 {
			t.Errorf("epoch %d, want 2", n)
		}
		check(t, "a third wait", conns[1].Wait(time.Second), comm.ResultInProgress, "signal 3 has not arrived within 1s")
		if err := errors.Join(conns[0].Signal(), conns[1].Wait(time.Minute)); err != nil {
			t.Errorf("the same wait again: %v", err)
		}
	})
}

// A rank may connect to itself, and have several connections with another.
func TestSelfAndTags(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks := start(t, 2, nil)
		region := make([]comm.Region, 2)
		mem := make([][]byte, 2)
		for i, r := range ranks {
			region[i], mem[i] = memory(t, 4096)
			for tag := range 3 {
				if err := errors.Join(r.Connect(i, tag, region[i]), r.Connect(1-i, tag, region[i])); err != nil {
					t.Fatal(err)
				}
			}
		}
		must(t, each(ranks, func(r *rank) error {
			if err := r.Setup(); err != nil {
				return err
			}
			if n := len(r.Connections()); n != 6 {
				return fmt.Errorf("%d connections, want 6", n)
			}
			for _, x := range r.Connections() { // a byte for each, where the other side has it for this one
				at := uint64(16 + x.Remote()*4 + x.Tag())
				to := uint64(32 + r.number*4 + x.Tag())
				mem[r.number][at] = byte(at)
				if err := errors.Join(x.PutWithSignal(to, at, 1), x.Wait(time.Minute), x.Flush(time.Minute)); err != nil {
					return err
				}
			}
			return r.Barrier()
		}))
		for i := range ranks {
			for from := range ranks {
				for tag := range 3 {
					if got, want := mem[i][32+from*4+tag], byte(16+i*4+tag); got != want {
						t.Errorf("rank %d, from rank %d with tag %d: %d, want %d", i, from, tag, got, want)
					}
				}
			}
		}
	})
}

// Connections may be added by another Setup. A rank without a new one takes part.
func TestSetupAgain(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks := start(t, 3, nil)
		for round, ends := range [][2]int{{0, 1}, {1, 2}, {0, 2}} {
			for k, i := range ends {
				region, _ := memory(t, 64)
				if err := ranks[i].Connect(ends[1-k], round, region); err != nil {
					t.Fatal(err)
				}
			}
			must(t, each(ranks, func(r *rank) error { return r.Setup() }))
			x, err := ranks[ends[0]].Connection(ends[1], round)
			if err != nil {
				t.Fatal(err)
			}
			y, err := ranks[ends[1]].Connection(ends[0], round)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(x.Signal(), y.Wait(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Connections that do not fit together are the same error on all ranks, and can be completed.
func TestOneSideConnects(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks := start(t, 2, nil)
		region, _ := memory(t, 64)
		if err := ranks[0].Connect(1, 3, region); err != nil {
			t.Fatal(err)
		}
		check(t, "the same again", ranks[0].Connect(1, 3, region), comm.ResultInvalidArgument, "there is a connection to rank 1 with tag 3 already")
		for _, err := range each(ranks, func(r *rank) error { return r.Setup() }) {
			check(t, "setup", err, comm.ResultInvalidArgument, "rank 0 has connected to rank 1 with tag 3, but rank 1 not to rank 0")
		}
		if err := ranks[1].Connect(0, 3, region); err != nil {
			t.Fatal(err)
		}
		must(t, each(ranks, func(r *rank) error { return r.Setup() }))
	})
}

func TestBadArguments(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks, conns, mem := pair(t, 4096)
		before := string(mem[1])
		region, _ := memory(t, 64)
		const huge = 1 << 63
		x := conns[0]
		for _, tt := range []struct {
			what  string
			err   error
			want  comm.Result
			words []string
		}{
			{"a rank that is none", ranks[0].Connect(2, 0, region), comm.ResultInvalidArgument, []string{"rank 2", "2 ranks"}},
			{"no memory", ranks[0].Connect(1, 0, comm.Region{}), comm.ResultInvalidArgument, []string{"0 bytes"}},
			{"a put beyond the remote buffer", x.Put(4090, 0, 7), comm.ResultInvalidArgument, []string{"7 bytes at offset 4090 of the remote buffer, which has 4096 bytes"}},
			{"a put beyond the local buffer", x.Put(0, 4097, 0), comm.ResultInvalidArgument, []string{"offset 4097 of the local buffer"}},
			{"a put whose end wraps", x.Put(huge, 0, huge), comm.ResultInvalidArgument, []string{"of the local buffer"}},
			{"a put whose destination wraps", x.Put(^uint64(0), 0, 2), comm.ResultInvalidArgument, []string{"of the remote buffer"}},
			{"a put with a signal", x.PutWithSignal(4096, 0, 1), comm.ResultInvalidArgument, []string{"of the remote buffer"}},
			{"a get", x.Get(0, 4096, 1), comm.ResultInvalidArgument, []string{"of the remote buffer"}},
			{"a time-out", ranks[0].process.SetBootstrapTimeout(0), comm.ResultInvalidArgument, []string{"0s"}},
		} {
			check(t, tt.what, tt.err, tt.want, tt.words...)
		}
		_, err := ranks[0].Connection(1, 8)
		check(t, "a tag that is none", err, comm.ResultInvalidArgument, "tag 8")
		if err := errors.Join(x.Signal(), conns[1].Wait(time.Minute)); err != nil {
			t.Errorf("a signal after all that: %v", err)
		}
		if n := conns[1].Epoch(); n != 1 || string(mem[1]) != before {
			t.Errorf("epoch %d, want 1; the buffer has changed: %v", n, string(mem[1]) != before)
		}
		if err := ranks[0].Close(); err != nil {
			t.Fatal(err)
		}
		check(t, "a put after Close", x.Put(0, 0, 1), comm.ResultInvalidUsage, "closed")
		check(t, "a barrier after Close", ranks[0].Barrier(), comm.ResultInvalidUsage, "closed")
	})
}

// A rank that waits for a signal of a peer that dies gets an error, and the signals that came before.
func TestPeerDiesInWait(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks, conns, _ := pair(t, 4096)
		ranks[1].killed = true
		must(t, each(ranks, func(r *rank) error {
			x := conns[r.number]
			if r.number == 1 {
				err := errors.Join(x.Signal(), x.Flush(time.Minute))
				r.runs.Kill()
				return err
			}
			transporttest.WorldOf(t).Sleep(10 * time.Second)
			if err := x.Wait(time.Minute); err != nil {
				return fmt.Errorf("the signal before: %w", err)
			}
			begun := time.Now()
			check(t, "wait", x.Wait(comm.Forever), comm.ResultRemoteError, "connection of rank 0 to rank 1, tag 7: wait: ", "peer gone")
			if d := time.Since(begun); d > 20*time.Second {
				t.Errorf("the error comes after %v", d)
			}
			check(t, "put", x.Put(0, 0, 8), comm.ResultRemoteError)
			check(t, "flush", x.Flush(comm.Forever), comm.ResultRemoteError)
			return nil
		}))
	})
}

// A call that waits returns when the Comm is closed.
func TestCloseInWait(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks, conns, _ := pair(t, 4096)
		done := make(chan error, 2)
		go func() { done <- conns[0].Wait(comm.Forever) }()
		go func() { done <- ranks[0].Barrier() }()
		transporttest.WorldOf(t).Sleep(time.Second)
		if err := ranks[0].Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			check(t, "waiting", <-done, comm.ResultInvalidUsage)
		}
	})
}

// Figures of ranks are exchanged without connections.
func TestAllGather(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks := start(t, 3, nil)
		must(t, each(ranks, func(r *rank) error {
			data := make([]byte, 8*r.Size())
			binary.LittleEndian.PutUint64(data[8*r.Rank():], uint64(100+r.Rank()))
			if err := errors.Join(r.AllGather(data), r.Barrier()); err != nil {
				return err
			}
			for i := range r.Size() {
				if got := binary.LittleEndian.Uint64(data[8*i:]); got != uint64(100+i) {
					return fmt.Errorf("rank %d has %d", i, got)
				}
			}
			return nil
		}))
	})
}

func TestInitByAddress(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		ranks := make([]*rank, 2)
		for i := range ranks {
			p, runs := newProcess(t, map[string]string{"NCCL_MESH_KEY": "sixteen letters!"})
			ranks[i] = &rank{process: p, runs: runs, number: i}
		}
		must(t, each(ranks, func(r *rank) (err error) {
			r.Comm, err = r.process.InitRank(2, "192.168.1.1:4711", r.number)
			return err
		}))
		must(t, each(ranks, func(r *rank) error { return errors.Join(r.Barrier(), r.Close()) }))
	})
}

func TestInitFails(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		p, _ := newProcess(t, nil)
		_, err := p.InitRank(2, "192.168.1.1:4711", 1)
		check(t, "no key", err, comm.ResultInvalidUsage, "NCCL_MESH_KEY")
		_, err = p.InitRankFromID(2, comm.ID{}, 2)
		check(t, "a rank that is none", err, comm.ResultInvalidArgument, "rank 2 of 2")
		if err := p.SetBootstrapTimeout(3 * time.Second); err != nil {
			t.Fatal(err)
		}
		id, err := p.UniqueID()
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.InitRankFromID(2, id, 0)
		check(t, "a rank is missing", err, comm.ResultRemoteError, "rank 1 of 2 has not joined within 3s")
		q, _ := newProcess(t, map[string]string{"NCCL_IB_TC": "high"})
		_, err = q.UniqueID()
		check(t, "a setting that is not accepted", err, comm.ResultInvalidUsage, "NCCL_IB_TC", "high")
		transporttest.WorldOf(t).Sleep(time.Minute) // until the root has ended
	})
}

// The ID of a job that is complete, or has ended, is refused, and the job goes on.
func TestIDOfAnotherJob(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		p, _ := newProcess(t, nil)
		other, _ := newProcess(t, nil)
		id, c := alone(t, p)
		_, err := other.InitRankFromID(2, id, 1)
		check(t, "a job of another size", err, comm.ResultInvalidUsage, "rank 1", "was started for a job of 2 ranks, but the ranks that came before for 1")
		_, err = other.InitRankFromID(1, id, 0)
		check(t, "a job that is complete", err, comm.ResultInvalidUsage, "rank 0 has already joined", "give every process a rank of its own")
		if err := errors.Join(c.Barrier(), c.Close()); err != nil {
			t.Error(err)
		}
		transporttest.WorldOf(t).Sleep(time.Minute) // until the root has ended
		_, err = other.InitRankFromID(1, id, 0)
		check(t, "a job that has ended", err, comm.ResultRemoteError, "the unique id", "pass the id that rank 0 has made for this job")
	})
}

// A panic in a call is an error, and is logged with its stack, line by line.
func TestGuarded(t *testing.T) {
	var lines []string
	p := comm.NewProcess(comm.Host{Log: func(level slog.Level, text string) { lines = append(lines, fmt.Sprint(level, " ", text)) }})
	check(t, "a panic", p.Guarded(func() error { panic("no such lane") }), comm.ResultInternalError, "no such lane")
	if len(lines) < 3 || !strings.Contains(lines[0], "no such lane; please report this with the lines that follow") {
		t.Errorf("the log has %q", lines)
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, "ERROR ") || strings.Contains(line, "\n") {
			t.Errorf("a line of the log is %q", line)
		}
	}
	check(t, "an error", p.Guarded(func() error { return comm.ErrTimeout }), comm.ResultInProgress)
	if err := p.Guarded(func() error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestResults(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want comm.Result
	}{
		{nil, 0}, {errors.New("ENOMEM"), 2}, {fault.ErrInternal, 3}, {comm.ErrArgument, 4}, {fault.ErrUsage, 5}, {fault.ErrPeerGone, 6},
		{fault.ErrUnreachable, 6}, {comm.ErrTimeout, 7}, {fmt.Errorf("%w: %w", comm.ErrArgument, fault.ErrUsage), 4},
	} {
		if got := comm.ResultOf(tt.err); got != tt.want {
			t.Errorf("%v is %d, want %d", tt.err, got, tt.want)
		}
	}
	seen := map[string]bool{}
	for r := range comm.Result(comm.NumResults) {
		seen[r.String()] = true
	}
	if len(seen) != comm.NumResults || comm.Result(-1).String() != "unknown result" || comm.Result(comm.NumResults).String() != "unknown result" {
		t.Errorf("texts of results: %v", seen)
	}
}
