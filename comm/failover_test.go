package comm_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"ncclmesh/comm"
	"ncclmesh/comm/fifo"
	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/world"
	"ncclmesh/tests/transporttest"
)

// No put and no signal is lost or doubled when cables fail and return, both at once too, for less than NCCL_MESH_LANE_WAIT.
func TestCablesFail(t *testing.T) {
	for _, pushed := range []bool{false, true} {
		name := "called"
		if pushed {
			name = "pushed"
		}
		t.Run(name, transporttest.Simulated(func(t *testing.T) {
			const rounds, size = 120, 256 << 10
			w := transporttest.WorldOf(t)
			ranks, conns, mem := pair(t, 2*size)
			launch(t, ranks)
			stop := make(chan struct{})
			cut := make(chan struct{})
			go func() {
				defer close(cut)
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					c := w.Cables[n%2]
					c.Cut(true)
					w.Sleep(30 * time.Millisecond)
					if n%5 == 4 { // both
						w.Cables[1-n%2].Cut(true)
						w.Sleep(200 * time.Millisecond)
						w.Cables[1-n%2].Cut(false)
					}
					c.Cut(false)
					w.Sleep(50 * time.Millisecond)
				}
			}()
			errs := each(ranks, func(r *rank) error {
				x, own := conns[r.number], mem[r.number]
				for round := range rounds {
					w.Sleep(2 * time.Millisecond)
					transporttest.Fill(own[:size], round*2+r.number)
					if pushed {
						push(t, x, fifo.Trigger{Kind: fifo.Put | fifo.Signal, Dst: size, Size: size})
					} else if err := x.PutWithSignal(size, 0, size); err != nil {
						return err
					}
					if err := x.Wait(time.Minute); err != nil {
						return fmt.Errorf("round %d: %w", round, err)
					}
					want := make([]byte, size)
					transporttest.Fill(want, round*2+1-r.number)
					if !bytes.Equal(want, own[size:]) {
						return fmt.Errorf("round %d: the bytes differ", round)
					}
					if x.Epoch() != uint64(round+1) {
						return fmt.Errorf("round %d: epoch %d", round, x.Epoch())
					}
					if err := errors.Join(x.Flush(time.Minute), r.Barrier()); err != nil {
						return fmt.Errorf("round %d: %w", round, err)
					}
				}
				return nil
			})
			close(stop)
			<-cut
			must(t, errs)
		}))
	}
}

// Ranks whose nodes share no cable reach each other through the node between them, also while one of the two routes of a ring is cut.
func TestThroughOtherNodes(t *testing.T) {
	bus.Run(t, 7, func(t *testing.T, b *bus.Bus) {
		const size = 1 << 20
		var regions [4]comm.Region
		var mem [4][]byte
		for i := range regions { // freed after the ranks have closed
			regions[i], mem[i] = memory(t, 2*size)
		}
		w := world.New(t, b)
		var machines []*world.Machine
		for _, name := range []string{"a", "b", "c", "d"} {
			machines = append(machines, w.AddMachine(name))
		}
		var cables []*world.Cable
		speed := world.Speed{Rate: 12_500_000_000, Latency: 2 * time.Microsecond, Jitter: time.Microsecond}
		for i := range machines {
			cables = append(cables, w.Cable(i, speed, true, machines[i], machines[(i+1)%4]))
		}
		w.Management()
		ranks := make([]*rank, 4)
		for i, m := range machines {
			runs := m.Start()
			p := comm.NewProcess(comm.Host{
				Getenv: func(name string) string {
					return map[string]string{"NCCL_SOCKET_IFNAME": "mgmt0", "NCCL_MESH_STATUS": "0"}[name]
				}, Environ: func() []string { return nil }, Machine: runs.Runs(),
				Log: func(level slog.Level, text string) { t.Logf("%s: %v %s", runs.Name, level, text) },
			})
			ranks[i] = &rank{process: p, runs: runs, number: i}
		}
		t.Cleanup(func() { // after the ranks have closed: a process that relays goes on until its circuits have ended
			for _, r := range ranks {
				for end := b.Now() + time.Minute; len(r.runs.Open()) > 0 && b.Now() < end; w.Clock.Sleep(time.Millisecond) {
				}
			}
			w.Clock.Sleep(time.Second)
		})
		join(t, ranks)
		for i, r := range ranks { // with the node across
			if err := r.Connect((i+2)%4, 0, regions[i]); err != nil {
				t.Fatal(err)
			}
		}
		must(t, each(ranks, func(r *rank) error { return r.Setup() }))
		for round := range 4 {
			if round == 2 {
				cables[0].Cut(true)
			}
			must(t, each(ranks, func(r *rank) error {
				x, err := r.Connection((r.number+2)%4, 0)
				if err != nil {
					return err
				}
				transporttest.Fill(mem[r.number][:size], round*4+r.number)
				if err := errors.Join(x.PutWithSignal(size, 0, size), x.Wait(time.Minute), x.Flush(time.Minute)); err != nil {
					return err
				}
				want := make([]byte, size)
				transporttest.Fill(want, round*4+x.Remote())
				if !bytes.Equal(want, mem[r.number][size:]) {
					return fmt.Errorf("round %d: the bytes differ", round)
				}
				return r.Barrier()
			}))
		}
	})
}
