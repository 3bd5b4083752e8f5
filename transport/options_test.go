package transport

import (
	"fmt"
	"testing"
)

// A queue pair of a probe fails in time, regardless of the user's timeout for the others.
func TestAckTimeout(t *testing.T) {
	for _, tt := range []struct {
		set         int
		scale       float64
		trial, conn int
	}{
		{-1, 1, 14, 14}, {0, 1, 14, 0}, {10, 1, 10, 10}, {22, 1, 14, 22}, {-1, 5, 17, 17}, {22, 5, 17, 22}, {16, 5, 16, 16},
	} {
		o := Options{Timeout: tt.set, TimeScale: tt.scale}.withDefaults()
		v := o.verbs(nil)
		if trial, conn := v.ProbeTimeout, v.Timeout; trial != tt.trial || conn != tt.conn {
			t.Errorf("%s: %d for a trial and %d for a connection, want %d and %d", fmt.Sprint(tt.set, " scaled by ", tt.scale), trial, conn, tt.trial, tt.conn)
		}
	}
}
