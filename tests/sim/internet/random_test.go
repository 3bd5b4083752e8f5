package internet_test

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"testing"
	"time"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/internet"
	"ncclmesh/transport/sock"
)

// Many streams under many faults: every byte that comes is the right one, an end that says that it is one is one, nothing is
// left, and one seed is one history.
func TestRandom(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() || !bus.Reproduces {
		seeds = 5
	}
	happened := map[string]int{}
	for seed := range seeds {
		run := bus.Run
		if seed%10 == 0 {
			run = bus.Twice
		}
		if run(t, seed, func(t *testing.T, b *bus.Bus) { random(t, b, happened) }); t.Failed() {
			return
		}
	}
	for _, what := range []string{"lost segment", "no carrier for a segment", "no neighbour", "black hole for a segment", "sent again", "timed out",
		"reset", "reset from outside", "refused a segment", "whole", "broken"} {
		if happened[what] == 0 {
			t.Errorf("%q has never happened: the runs were not nasty enough; they had %v", what, happened)
		}
	}
}

// random sends bytes over streams between hosts, little by little, and lets the weather change meanwhile.
func random(t *testing.T, b *bus.Bus, happened map[string]int) {
	const hosts, streams = 4, 12
	w := newWorld(t, b, hosts)
	var traffic, weather sync.WaitGroup
	var mu sync.Mutex
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		happened[what]++
	}
	for i := range streams {
		a, z := w.pair(i%hosts, (i+1+i/hosts)%hosts)
		p := sock.Patience{Idle: 2 * time.Second, Interval: time.Second, Count: 3, Silence: 15 * time.Second}
		w.must(a.SetPatience(p), z.SetPatience(p))
		writer := b.Source(fmt.Sprintf("writer %02d", i))
		want := pattern(writer.LogUniform(1000, 2_000_000), i)
		traffic.Go(func() {
			defer a.Close()
			for left := want; len(left) > 0; {
				n, err := a.Write(left[:writer.LogUniform(1, len(left))])
				if left = left[n:]; err != nil {
					return
				}
				writer.Sleep(writer.Between(0, time.Second))
			}
			_ = a.CloseWrite()
			_, _ = io.Copy(io.Discard, a)
		})
		traffic.Go(func() {
			got, err := io.ReadAll(z)
			_ = z.Close()
			if err == nil && len(got) == len(want) {
				note("whole")
			} else {
				note("broken")
			}
			if !bytes.Equal(got, want[:min(len(got), len(want))]) || len(got) > len(want) {
				t.Errorf("stream %d: %d bytes came, and they are not those that were sent", i, len(got))
			}
		})
	}
	stop := make(chan struct{})
	sky := b.Source("weather")
	weather.Go(func() {
		for {
			w.change(sky)
			sky.Sleep(sky.Between(0, 500*time.Millisecond))
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	traffic.Wait()
	close(stop)
	weather.Wait()
	for _, p := range w.processes {
		if left := p.Open(); len(left) > 0 {
			t.Errorf("%v has left open: %v", p, left)
		}
	}
	for what, n := range w.net.Counts() {
		happened[what] += n
	}
}

// change makes one thing worse or better.
func (w *world) change(s *bus.Source) {
	i, k := s.IntN(len(w.hosts)), s.IntN(len(w.hosts))
	port := w.ports[i]
	long := s.Between(0, 4*time.Second)
	if s.Chance(0.1) {
		long *= 10
	}
	switch s.IntN(9) {
	case 0:
		port.SetUp(false)
		s.Sleep(long)
		port.SetUp(true)
	case 1:
		w.link.Cut(true)
		s.Sleep(long / 4)
		w.link.Cut(false)
	case 2, 3:
		port.Lose(internet.Loss{Streams: s.Float64() * s.Float64(), Neighbour: s.Float64()})
	case 4:
		port.Lose(internet.Loss{})
	case 5:
		port.Slow(int64(s.LogUniform(100_000, 1e9)))
	case 6:
		port.Delay(s.Between(0, 20*time.Millisecond))
	case 7:
		w.net.BlackHole(w.hosts[i], w.hosts[k], true)
		s.Sleep(long)
		w.net.BlackHole(w.hosts[i], w.hosts[k], false)
	case 8:
		if !s.Chance(0.1) {
			break
		}
		if s.Chance(0.5) {
			w.net.Reset(func(from, _ netip.AddrPort) bool { return from.Addr() == addr(i) })
			break
		}
		w.hosts[i].PowerOff()
		s.Sleep(long)
		w.hosts[i].PowerOn()
	}
}
