package path

import "testing"

// Of many ways that were tried the log has one, and their number.
func TestFirstTried(t *testing.T) {
	tests := []struct {
		tried []string
		want  string
	}{
		{[]string{"r0 -> r1: no answer"}, "tried r0 -> r1: no answer"},
		{[]string{"r0 -> r1: no answer", "r0 -> r2: no answer", "r0 -> r3: no answer"}, "tried r0 -> r1: no answer; and 2 more ways, which NCCL_MESH_DEBUG=debug lists"},
	}
	for _, tt := range tests {
		if got := firstTried(tt.tried); got != tt.want {
			t.Errorf("firstTried(%q) = %q, want %q", tt.tried, got, tt.want)
		}
	}
}
