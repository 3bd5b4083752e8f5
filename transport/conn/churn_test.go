package conn_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"ncclmesh/ibv"
	"ncclmesh/tests/require"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/lane"
)

// Memory is registered and deregistered while a port joins, which registers all memory of the connection: no
// call blocks for ever, and nothing stays registered.
func TestPortJoinsWhileMemoryComesAndGoes(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		hurry := func(o *transport.Options) { o.ProofWait = 50 * time.Millisecond } // for the port that is stalled
		rounds := 1
		if require.IsFull() {
			rounds = 3
		}
		for range rounds {
			s, r := transporttest.ConnectOver(t, transporttest.New(t, hurry), transporttest.New(t, hurry), lane.Verbs)
			f := newTraffic(t, transporttest.Draws(t), s, r, 4, 1<<16)
			f.run(10, func() {})
			w, over := transporttest.WorldOf(t), make(chan struct{})
			var busy sync.WaitGroup
			for _, c := range []interface {
				RegMR(kind lane.MemoryKind, addr, length uintptr) (*lane.Region, error)
				DeregMR(*lane.Region) error
			}{s, r} {
				for range 2 {
					m, err := ibv.Alloc(1 << 16)
					if err != nil {
						t.Fatal(err)
					}
					busy.Go(func() {
						defer func() { _ = m.Free() }()
						for {
							g, err := c.RegMR(lane.HostMemory, m.Addr(), uintptr(m.Len()))
							if err == nil {
								err = c.DeregMR(g)
							}
							if err != nil {
								t.Error(err)
								return
							}
							select {
							case <-over:
								return
							default:
								w.Sleep(10 * time.Microsecond)
							}
						}
					})
				}
			}
			fail(rand.New(rand.NewPCG(1, 1)), up(s, r)[0])
			f.run(100, func() {})
			transporttest.Await(t, "both ports", func() bool { f.step(f.count + 4); return len(up(s, r)) == 2 })
			close(over)
			busy.Wait()
			f.run(10, func() {})
			transporttest.CloseBoth(t, s, r)
		}
	})
}

// A connection is closed while a port joins it and registers its memory: everything is released, because the
// transports would not close otherwise.
func TestCloseWhilePortJoins(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		hurry := func(o *transport.Options) { o.ProofWait = 50 * time.Millisecond }
		rnd := transporttest.Draws(t)
		from, to := transporttest.New(t, hurry), transporttest.New(t, hurry)
		for range 20 {
			s, r := transporttest.ConnectOver(t, from, to, lane.Verbs)
			var regions []*lane.Region
			for range 100 {
				m, _ := transporttest.Memory(t, 1<<12)
				transporttest.Register(t, r, m)
				regions = append(regions, transporttest.Register(t, s, m))
			}
			fail(rnd, up(s, r)[0])
			transporttest.Await(t, "the port to register memory, or to have", func() bool {
				s.Lock()
				defer s.Unlock()
				return regions[0].Held(1) || slices.ContainsFunc(regions, func(g *lane.Region) bool { return g.Joining })
			})
			transporttest.CloseBoth(t, s, r)
		}
	})
}
