package datapath

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"ncclmesh/comm"
	"ncclmesh/comm/fifo"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/onesided"
)

// commJob makes ranks of one job, all in this process, each connected to all, itself too, with a registered buffer.
func commJob(t *testing.T, n int) (ranks []*comm.Comm, buffers []*comm.Buffer) {
	t.Helper()
	transporttest.RequireFake(t)
	p := comm.NewProcess(comm.Host{
		Getenv: os.Getenv, Environ: os.Environ, Spins: 100,
		Log: func(l slog.Level, text string) { t.Log(l, text) },
	})
	id, err := p.UniqueID()
	if err != nil {
		t.Fatal(err)
	}
	ranks, buffers = make([]*comm.Comm, n), make([]*comm.Buffer, n)
	regions := make([]comm.Region, n)
	for i := range regions {
		m, _ := transporttest.Memory(t, 1<<20)
		regions[i] = comm.Region{Kind: lane.HostMemory, Addr: m.Addr(), Length: 1 << 20}
	}
	eachRank(t, n, func(rank int) error {
		c, err := p.InitRankFromID(n, id, rank)
		if err != nil {
			return err
		}
		ranks[rank] = c
		for other := range n {
			if err := c.Connect(other, 0, regions[rank]); err != nil {
				return err
			}
		}
		if err := c.Setup(); err != nil {
			return err
		}
		buffers[rank], err = c.Register(regions[rank])
		return err
	})
	t.Cleanup(func() { eachRank(t, n, func(rank int) error { return ranks[rank].Close() }) })
	return ranks, buffers
}

// eachRank calls f for all ranks at once.
func eachRank(t *testing.T, n int, f func(rank int) error) {
	t.Helper()
	var all sync.WaitGroup
	for rank := range n {
		all.Go(func() {
			if err := f(rank); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// Threads that use the connections of a communicator, its FIFOs, its buffers and its bootstrap at once do not race.
func TestThreadsOfAComm(t *testing.T) {
	const n, rounds = 3, 60
	ranks, buffers := commJob(t, n)
	eachRank(t, n, func(rank int) error {
		c, b := ranks[rank], buffers[rank]
		if err := c.LaunchProxies(); err != nil {
			return err
		}
		var threads sync.WaitGroup
		errs := make(chan error, n+1)
		for _, x := range c.Connections() {
			threads.Go(func() { errs <- useConnection(x, b, rank, rounds) })
		}
		threads.Go(func() {
			var err error
			for i := 0; i < rounds && err == nil; i++ {
				err = c.Barrier()
			}
			errs <- err
		})
		threads.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				return err
			}
		}
		for i := range uint64(n) {
			if err := b.Wait(8*i, rounds, time.Minute); err != nil {
				return err
			}
		}
		waiting := make(chan error)
		go func() { waiting <- c.Connections()[0].Wait(comm.Forever) }()
		if err := errors.Join(c.StopProxies(), c.Barrier(), c.Close()); err != nil {
			return err
		}
		if <-waiting == nil {
			return errors.New("a wait for a signal that nobody sends has returned")
		}
		return nil
	})
}

// useConnection puts and signals by calls and by the FIFO, reads, and adds to a word of the other side's buffer.
func useConnection(x *comm.Connection, b *comm.Buffer, rank, rounds int) error {
	for i := range rounds {
		put := fifo.Trigger{Kind: fifo.Put | fifo.Signal, Dst: 1<<19 + uint64(rank)<<16, Size: 60000}
		var err error
		for pushed := i%2 == 0; !pushed && err == nil; {
			_, pushed, err = x.FIFO().Push(&put)
		}
		if i%2 == 0 {
			err = x.PutWithSignal(put.Dst, 0, put.Size)
		}
		if err = errors.Join(err, x.Wait(time.Minute), b.Signal(x.Remote(), uint64(8*rank), onesided.SignalInc, 0)); err != nil {
			return err
		}
		if i%10 == 0 {
			if err := errors.Join(x.Get(1<<19-8192, 4096, 4096), x.Flush(time.Minute)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Puts, signals, waits and flushes allocate nothing, and neither does the goroutine that makes progress.
func TestCommAllocatesNothing(t *testing.T) {
	ranks, _ := commJob(t, 2)
	a, err := ranks[0].Connection(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := ranks[1].Connection(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	trigger := fifo.Trigger{Kind: fifo.Put | fifo.Signal | fifo.Flush, Size: 8}
	eachRank(t, 2, func(rank int) error { return ranks[rank].LaunchProxies() })
	for what, f := range map[string]func() error{
		"a put with a signal, and a wait": func() error { return errors.Join(a.PutWithSignal(0, 0, 100000), b.Wait(comm.Forever)) },
		"a put and a flush":               func() error { return errors.Join(a.Put(0, 0, 8), a.Flush(comm.Forever)) },
		"a get":                           func() error { return errors.Join(a.Get(0, 0, 8), a.Flush(comm.Forever)) },
		"a trigger": func() error {
			_, _, err := a.FIFO().Push(&trigger)
			return errors.Join(err, b.Wait(comm.Forever))
		},
	} {
		if n := transporttest.Allocations(200, func() {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s allocates %v times", what, n)
		}
	}
}
