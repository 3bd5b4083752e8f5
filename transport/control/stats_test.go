package control

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStatsString(t *testing.T) {
	tests := []struct {
		name string
		s    Stats
		want string
	}{
		{"nothing", Stats{}, "0 sessions dialled, 0 accepted, 0 links cut, 0 resumed, 0 peers died, 0 handshakes refused"},
		{"refusals", Stats{Dialled: 1, Accepted: 2, Cut: 3, Resumed: 4, Dead: 5, Refused: map[string]uint64{"bad MAC": 2, "a slow peer": 1}},
			"1 sessions dialled, 2 accepted, 3 links cut, 4 resumed, 5 peers died, 3 handshakes refused: 1 a slow peer, 2 bad MAC"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.s.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
