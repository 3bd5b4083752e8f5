package bus

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ncclmesh/tests/sim/draw"
)

// shown is how many events a failed run prints.
const shown = 200

// A trace is what was released so far.
type trace struct {
	hash   hash.Hash64
	events int
	last   [shown]entry // a ring
}

type entry struct {
	at           time.Duration
	source, what string
}

func (t *trace) begin(seed uint64) {
	t.hash = fnv.New64a()
	t.number(seed)
}

func (t *trace) number(v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	_, _ = t.hash.Write(b[:])
}

func (t *trace) add(e *Event) {
	t.number(uint64(e.at))
	_, _ = t.hash.Write([]byte(e.source))
	_, _ = t.hash.Write([]byte{0})
	_, _ = t.hash.Write([]byte(e.what))
	_, _ = t.hash.Write([]byte{0})
	t.last[t.events%shown] = entry{e.at, e.source, e.what}
	t.events++
}

// Summary is what a run was: two runs with one summary were the same.
type Summary struct {
	Seed, Hash uint64
	Events     int
}

// Summary sums the run up. The bus must have been closed.
func (b *Bus) Summary() Summary {
	return Summary{Seed: b.draws.Seed(), Hash: b.trace.hash.Sum64(), Events: b.trace.events}
}

// Last returns the last events as text, the oldest first, at most 200. The bus must have been closed.
func (b *Bus) Last() string {
	t := &b.trace
	var out strings.Builder
	for i := max(0, t.events-shown); i < t.events; i++ {
		e := t.last[i%shown]
		fmt.Fprintf(&out, "%14v  %-24s %s\n", e.at, e.source, e.what)
	}
	return out.String()
}

// Run calls f in a bubble with the bus of a seed, and returns the summary. When f fails the test it logs the seed, the hash
// and the last events.
//
// The run has one processor, because goroutines that an event has woken would else run beside each other, in no order, and
// garbage is collected between two events only. Tests that call Run must not be parallel.
func Run(t *testing.T, seed uint64, f func(t *testing.T, b *Bus)) (s Summary) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var released atomic.Int64
	defer watch(&released)()
	defer withoutCollector()()
	synctest.Test(t, func(t *testing.T) {
		b := New(draw.New(seed))
		b.released = &released
		defer func() {
			b.Close()
			if s = b.Summary(); t.Failed() {
				t.Logf("seed %d, hash %016x after %d events, the last of which are:\n%s", s.Seed, s.Hash, s.Events, b.Last())
			}
		}()
		f(t, b)
	})
	return s
}
