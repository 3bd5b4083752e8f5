package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/tools/ncclmesh/launch"
	"ncclmesh/tools/ncclmesh/nccl"
)

// ServeNCCL returns the handler of an agent that runs NCCL in its own process. variables returns what the process needs set,
// and what works against the plugin; getenv reads the environment. A process that NCCL does not return from ends by itself when
// the asker has gone.
func ServeNCCL(variables func(launch.Setting) (env, against []string, err error), getenv func(string) string) fleet.Handler {
	return func(ctx context.Context, q *fleet.Question) error {
		var s ncclSetup
		if err := q.With(&s); err != nil {
			return err
		}
		returned := make(chan struct{})
		defer close(returned)
		stop := context.AfterFunc(ctx, func() {
			select {
			case <-returned:
			case <-time.After(parting):
				os.Exit(1) // NCCL waits for ranks that are gone, and nobody is there to be told
			}
		})
		defer stop()
		env, against, err := variables(s.Setting)
		if err != nil {
			return err
		}
		for _, kv := range env {
			name, value, _ := strings.Cut(kv, "=")
			if err := os.Setenv(name, value); err != nil { // which NCCL reads at its first call
				return fmt.Errorf("set %s: %w", name, err)
			}
		}
		return serveNCCL(ctx, q, s, against, getenv)
	}
}

// gpus are the ranks of this host.
type gpus struct {
	library *nccl.Library
	workers []*gpuWorker
}

// gpuWorker has a thread of its own, on which all calls of its rank are made.
type gpuWorker struct {
	rank   *nccl.Rank
	number int // of the rank, once it has met the others
	ranks  int
	work   chan func()
}

func serveNCCL(ctx context.Context, q *fleet.Question, s ncclSetup, against []string, getenv func(string) string) (err error) {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	h := host{"/proc", cmp.Or(getenv("NCCL_MESH_SYSFS"), "/sys")}
	hello := started{Hostname: name, MemBytes: h.memBytes(), Busy: h.busy(), Against: against, Network: os.Getenv("NCCL_NET")}
	if len(hello.Busy) > 0 && !s.WhileBusy {
		return q.Answer(hello)
	}
	g := &gpus{}
	if g.library, err = nccl.Open(s.File, getenv); err != nil {
		return err
	}
	hello.NCCL = g.library.Version()
	if s.GPUs > g.library.Devices() {
		return fmt.Errorf("%d GPUs are asked for, and there are %d", s.GPUs, g.library.Devices())
	}
	defer func() { err = errors.Join(err, g.close()) }()
	for i := range cmp.Or(s.GPUs, g.library.Devices()) {
		g.workers = append(g.workers, newGPUWorker())
		if err := g.workers[i].open(g.library, i, &hello); err != nil {
			return err
		}
	}
	if err := q.Answer(hello); err != nil {
		return err
	}
	return answerOrders(ctx, q, g.obey)
}

func newGPUWorker() *gpuWorker {
	w := &gpuWorker{work: make(chan func())}
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		for f := range w.work {
			f()
		}
	}()
	return w
}

// do runs f on the worker's thread.
func (w *gpuWorker) do(f func() error) error {
	done := make(chan error, 1)
	w.work <- func() { done <- f() }
	return <-done
}

// open takes the GPU of that number, and says in hello what it has.
func (w *gpuWorker) open(l *nccl.Library, device int, hello *started) error {
	return w.do(func() (err error) {
		if w.rank, err = l.Rank(device); err != nil {
			return err
		}
		free, err := w.rank.FreeBytes()
		if err != nil {
			return err
		}
		// Where the GPU has memory of its own, what is free there counts beside what is free on the host, which checks results.
		hello.MemBytes = min(hello.MemBytes, free/fraction)
		hello.GPUs = append(hello.GPUs, w.rank.Name())
		return nil
	})
}

func (g *gpus) obey(ctx context.Context, o order) (d done, err error) {
	switch {
	case o.Allocate > 0:
		err = g.each(func(_ int, w *gpuWorker) error { return w.rank.Allocate(o.Allocate) })
	case o.Unique:
		var id nccl.UniqueID
		err = g.workers[0].do(func() error { id, err = g.library.UniqueID(); return err })
		d.Unique = id[:]
	case o.Meet != nil:
		err = g.each(func(i int, w *gpuWorker) error { return w.meet(o.Meet, i) })
	case o.GPUPlay != nil:
		d.GPUPlayed = make([]played, len(g.workers))
		err = g.each(func(i int, w *gpuWorker) (err error) {
			d.GPUPlayed[i], err = w.play(ctx, o.GPUPlay)
			return err
		})
	}
	return d, err
}

// each does something on all GPUs at once, as NCCL needs it.
func (g *gpus) each(do func(i int, w *gpuWorker) error) error {
	return fleet.Each(g.workers, func(i int, w *gpuWorker) error { return w.do(func() error { return do(i, w) }) })
}

func (g *gpus) close() error {
	err := g.each(func(_ int, w *gpuWorker) error {
		if w.rank == nil {
			return nil
		}
		return w.rank.Close()
	})
	for _, w := range g.workers {
		close(w.work)
	}
	return err
}

func (w *gpuWorker) meet(m *meeting, i int) error {
	var id nccl.UniqueID
	if len(m.ID) != len(id) {
		return fmt.Errorf("NCCL's unique id has %d bytes; want %d", len(m.ID), len(id))
	}
	copy(id[:], m.ID)
	w.number, w.ranks = m.First+i, m.Ranks
	return w.rank.Join(id, m.Ranks, w.number)
}

// play takes part in a collective: to warm up, for the time, and once more with contents that are checked.
func (w *gpuWorker) play(ctx context.Context, p *gpuPlaying) (done played, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*patient, errors.New("the other ranks have stopped"))
	defer cancel()
	part := newPart(p.Kind, p.Bytes, w.ranks)
	from, to := part.places(w.number, p.InPlace)
	repeat := func(times int) error {
		for range times {
			if err := part.begin(w.rank, from, to); err != nil {
				return err
			}
		}
		return w.rank.Wait(ctx)
	}
	if err := w.rank.Write(from.Buffer, from.Offset, part.sent(w.number)); err != nil {
		return done, err
	}
	if err := repeat(p.Warm); err != nil {
		return done, err
	}
	begun := time.Now()
	if err := repeat(p.Times); err != nil {
		return done, err
	}
	done.Each = time.Since(begun) / time.Duration(max(p.Times, 1))
	want := part.expected(w.number)
	got := make([]byte, len(want))
	if err := w.rank.Write(to.Buffer, to.Offset, got); err != nil { // so that nothing of before passes for a result
		return done, err
	}
	if err := w.rank.Write(from.Buffer, from.Offset, part.sent(w.number)); err != nil {
		return done, err
	}
	if err := repeat(1); err != nil {
		return done, err
	}
	if err := w.rank.Read(to.Buffer, to.Offset, got); err != nil {
		return done, err
	}
	done.Wrong = differ(got, want)
	return done, nil
}
