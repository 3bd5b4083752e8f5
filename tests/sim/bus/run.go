package bus

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"ncclmesh/tests/sim/draw"
)

// Run calls f in a bubble with the bus of a seed, which goes on until the cleanups of f have ended, and returns the summary. When
// f fails the test it logs the seed, the hash and the last events. Meanwhile all goroutines of the program share one processor, and no garbage is collected but between
// two events, so the test must not run beside others.
func Run(t *testing.T, seed uint64, f func(t *testing.T, b *Bus)) Summary {
	t.Helper()
	s, _ := run(t, seed, f)
	return s
}

// Twice is [Run] twice. It fails the test when the two runs differ. A run that the machine has disturbed, so that its
// goroutines did not take turns as they should, is no proof of that; then there are more.
func Twice(t *testing.T, seed uint64, f func(t *testing.T, b *Bus)) Summary {
	t.Helper()
	const most = 50
	seen := map[Summary]bool{}
	var clean []Summary // runs that were not disturbed
	for range most {
		s, disturbed := run(t, seed, f)
		if seen[s] || t.Failed() || !Reproduces && len(seen) > 0 {
			return s
		}
		seen[s] = true
		if !disturbed {
			clean = append(clean, s)
		}
		if len(clean) > 1 {
			t.Fatalf("two runs of one seed differ: %+v and %+v", clean[0], clean[1])
		}
	}
	t.Fatalf("no two of %d runs of seed %d were the same, and all but %d were disturbed by other work of this machine", most, seed, len(clean))
	return Summary{}
}

// run is Run; it reports also whether the machine has disturbed the run.
func run(t *testing.T, seed uint64, f func(t *testing.T, b *Bus)) (s Summary, disturbed bool) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var released atomic.Int64
	defer watch(&released)()
	synctest.Test(t, func(t *testing.T) {
		b := New(draw.New(seed))
		b.released = &released
		t.Cleanup(func() { // those of f are called before, with the bus
			b.Close()
			disturbed = b.peace.disturbed
			if s = b.Summary(); t.Failed() {
				t.Logf("seed %d, hash %016x after %d events, the last of which are:\n%s", s.Seed, s.Hash, s.Events, b.Last())
			}
		})
		f(t, b)
	})
	return s, disturbed
}
