package bus

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// cycles is how many collections Go has begun by itself, and how many there were in all.
func cycles() (own, all uint64) {
	samples := []metrics.Sample{{Name: "/gc/cycles/automatic:gc-cycles"}, {Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}

// In a run garbage is collected between two events, when much has gathered, and never by Go's own collector.
func TestCollectsBetweenEvents(t *testing.T) {
	const each = 1 << 20
	percent := debug.SetGCPercent(50)
	defer debug.SetGCPercent(percent)
	var kept []byte
	Run(t, 1, func(t *testing.T, b *Bus) {
		own, all := cycles()
		s := b.Source("test")
		for range 2 * collectAt / each {
			kept = make([]byte, each)
			for range 4 {
				s.Sleep(time.Microsecond)
			}
		}
		own2, all2 := cycles()
		if own2 != own {
			t.Errorf("Go's collector has begun %d times", own2-own)
		}
		if n := all2 - all; n == 0 || n > 4 {
			t.Errorf("%d collections of twice as much garbage as may gather", n)
		}
	})
	runtime.KeepAlive(kept)
	if now := debug.SetGCPercent(50); now != 50 {
		t.Errorf("after the run the collector is set to %d", now)
	}
}
