package hosts

import (
	"sync"
	"testing"
	"time"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/draw"
	"ncclmesh/tests/sim/internet"
)

// A Test is a test in virtual time. Its methods may be called from the goroutine of the test, Cleanup and those of
// testing.T from others too, as there.
type Test struct {
	*testing.T
	Bus *bus.Bus
	Net *internet.Internet

	draws     *draw.Source
	clock     *bus.Source
	hosts     map[string]*internet.Host
	processes []*Process

	mu       sync.Mutex
	cleanups []func()
}

// Run runs f in a bubble, without hosts yet. All that f starts must have ended after its cleanups. The test
// must not run beside others.
func Run(t *testing.T, f func(t *Test)) {
	t.Helper()
	const seed = 1
	bus.Run(t, seed, func(t *testing.T, b *bus.Bus) {
		w := &Test{T: t, Bus: b, Net: internet.New(b), draws: draw.New(seed), clock: b.Source("test"), hosts: map[string]*internet.Host{}}
		defer w.end()
		f(w)
	})
}

// end calls the cleanups, the last first, and checks that nothing is left open.
func (t *Test) end() {
	if f := t.cleanup(); f != nil {
		defer t.end() // also where f ends the test
		f()
		return
	}
	for _, p := range t.processes {
		if left := p.Open(); len(left) > 0 {
			t.Errorf("%v has left open: %v", p, left)
		}
	}
}

// cleanup takes the last cleanup; nil where none is left.
func (t *Test) cleanup() func() {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.cleanups)
	if n == 0 {
		return nil
	}
	f := t.cleanups[n-1]
	t.cleanups = t.cleanups[:n-1]
	return f
}

// Cleanup calls f at the end of the test, in its bubble, while the network still works.
func (t *Test) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// Run runs a part of the test, in the same bubble, and names it where it fails.
func (t *Test) Run(name string, f func(t *Test)) bool {
	t.Helper()
	before := t.Failed()
	defer func() {
		t.Helper()
		if !before && t.Failed() {
			t.Logf("the first part that failed: %s", name)
		}
	}()
	f(t)
	return before || !t.Failed()
}

// Sleep waits for d of virtual time, and until all other goroutines have come to rest then.
func (t *Test) Sleep(d time.Duration) { t.clock.Sleep(d) }

// After calls f in d of virtual time. f must not wait.
func (t *Test) After(d time.Duration, f func()) { t.clock.After(d, "test", f) }

// hang is how long Until waits. It decides nothing else.
const hang = 5 * time.Minute

// Until waits until something is so, which it looks at every millisecond of virtual time. After five minutes of it the test
// fails.
func (t *Test) Until(what string, so func() bool) {
	t.Helper()
	for begun := t.Bus.Now(); !so(); t.clock.Sleep(time.Millisecond) {
		if t.Bus.Now()-begun > hang {
			t.Fatalf("still waiting for %s", what)
		}
	}
}

// Host returns the host of a name, which has a loopback interface when it is first asked for.
func (t *Test) Host(name string) *internet.Host {
	if t.hosts[name] == nil {
		t.hosts[name] = t.Net.AddHost(name)
	}
	return t.hosts[name]
}
