package draw

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// A Source makes the streams of one seed. Its methods may be called from any goroutine.
type Source struct {
	seed uint64

	mu    sync.Mutex
	names map[string]bool
}

// New returns the source of a seed.
func New(seed uint64) *Source { return &Source{seed: seed, names: map[string]bool{}} }

// Seed is the number that New was called with.
func (s *Source) Seed() uint64 { return s.seed }

// Stream returns the stream of a name, at its first draw. It panics when the name has a stream already, because two
// things that draw alike are a mistake of the model.
func (s *Source) Stream(name string) *Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names[name] {
		panic(fmt.Sprintf("draw: the stream %q exists already", name))
	}
	s.names[name] = true
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, s.seed)
	_, _ = h.Write([]byte(name))
	c := &counter{key: mix(h.Sum64())}
	return &Stream{Rand: rand.New(c), counter: c}
}

// A Stream is a sequence of draws. One goroutine uses it at a time.
type Stream struct {
	*rand.Rand
	counter *counter
}

// Draws is how many numbers of 64 bits were taken so far.
func (s *Stream) Draws() uint64 { return s.counter.n }

// Chance is true with probability p. It takes one draw also where p is 0 or 1, so that a scenario that changes p leaves
// the later draws in their place.
func (s *Stream) Chance(p float64) bool { return s.Float64() < p }

// Between returns a duration from low to high, both included.
func (s *Stream) Between(low, high time.Duration) time.Duration {
	if high < low {
		panic(fmt.Sprintf("draw: no duration lies between %v and %v", low, high))
	}
	return low + time.Duration(s.Uint64N(uint64(high-low)+1))
}

// LogUniform returns a number from low to high, both included, whose logarithm is uniform: as many from 1 to 10 as from
// 1,000 to 10,000. 0 may be drawn where low is 0.
func (s *Stream) LogUniform(low, high int) int {
	if low < 0 || high < low {
		panic(fmt.Sprintf("draw: no number lies between %d and %d", low, high))
	}
	a, b := math.Log(float64(low)+1), math.Log(float64(high)+2)
	n := int(math.Exp(a+(b-a)*s.Float64())) - 1
	return min(max(n, low), high)
}

// counter is the rand.Source of a stream.
type counter struct {
	key, n uint64
}

// Uint64 returns the next draw.
func (c *counter) Uint64() uint64 {
	c.n++
	return mix(c.key + c.n*0x9e3779b97f4a7c15)
}

// mix is the finaliser of SplitMix64: each bit of the result depends on each of v.
func mix(v uint64) uint64 {
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}
