package pace

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/transport/clock"
)

// pauses returns how long each of n calls of Wait takes.
func pauses(p *Pace, n int) (all []time.Duration) {
	for range n {
		begun := time.Now()
		p.Wait()
		all = append(all, time.Since(begun))
	}
	return all
}

func TestPauses(t *testing.T) {
	const us = time.Microsecond
	synctest.Test(t, func(t *testing.T) {
		p := &Pace{Clock: clock.Clock{}, Spins: 2, Max: 24 * us}
		for _, tt := range []struct {
			name   string
			before func()
			want   []time.Duration
		}{
			{"polls, then pauses that grow up to the longest", func() {}, []time.Duration{0, 0, 20 * us, 22500, 24 * us, 24 * us}},
			{"short pauses without polls", p.Shorten, []time.Duration{20 * us, 22500}},
			{"from the beginning", p.Reset, []time.Duration{0, 0, 20 * us}},
		} {
			tt.before()
			if diff := cmp.Diff(tt.want, pauses(p, len(tt.want))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, diff)
			}
		}
	})
}
