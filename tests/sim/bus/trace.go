package bus

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"strings"
	"time"
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
