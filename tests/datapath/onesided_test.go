package datapath

import (
	"runtime"
	"testing"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/onesided"
)

// Puts, signals and gets allocate nothing, from the call of one side to the change of the word at the other.
func TestOneSidedAllocatesNothing(t *testing.T) {
	const size = 1 << 20
	for name, open := range map[string]func() *transport.Transport{
		"queue pairs": func() *transport.Transport { return transporttest.New(t) },
		"sockets":     func() *transport.Transport { return transporttest.NewTCP(t, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			ends := [2]*transport.Transport{open(), open()}
			s1, r1 := transporttest.Connect(t, ends[0], ends[1])
			s2, r2 := transporttest.Connect(t, ends[1], ends[0])
			spaces := [2]*onesided.Space{onesided.New(), onesided.New()}
			var windows [2]*onesided.Window
			for i, s := range spaces {
				m, _ := transporttest.Memory(t, size)
				var err error
				if windows[i], err = s.Register(lane.HostMemory, m.Addr(), size); err != nil {
					t.Fatal(err)
				}
			}
			p, err := spaces[0].Connect(s1, r2)
			if err != nil {
				t.Fatal(err)
			}
			q, err := spaces[1].Connect(s2, r1)
			if err != nil {
				t.Fatal(err)
			}
			both := func() { spaces[0].Progress(); spaces[1].Progress(); runtime.Gosched() }
			transporttest.Await(t, "the windows", func() bool {
				both()
				_, here := p.Window(1)
				_, there := q.Window(1)
				return here && there
			})
			word, err := windows[1].Word(0)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range []uint64{8, size - 8} {
				allocs := transporttest.Allocations(20, func() {
					want := word.Load() + 1
					put, err := p.PutSignal(1, 8, windows[0], 0, n, onesided.Signal{Window: 1, Do: onesided.SignalInc})
					if put == 0 || err != nil {
						t.Fatal(put, err)
					}
					get, err := p.Get(1, 8, windows[0], 8, n)
					if get == 0 || err != nil {
						t.Fatal(get, err)
					}
					for done := false; !done || word.Load() != want; both() {
						if done, err = p.Done(get); err != nil || p.Err() != nil || q.Err() != nil {
							t.Fatal(err, p.Err(), q.Err())
						}
					}
				})
				if allocs > 0 {
					t.Errorf("a put, signal and get of %d bytes allocate %v times", n, allocs)
				}
			}
			for _, s := range spaces {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
