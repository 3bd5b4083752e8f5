package path

import (
	"errors"
	"net/netip"
	"testing"

	"ncclmesh/transport/bundle"
)

// Of many ways that were tried the log has one, and their number.
func TestFirstTried(t *testing.T) {
	way := func(to string) bundle.Finding {
		return bundle.Finding{
			From: bundle.End{Node: "a", Port: "r0:1 (p0)", Addr: netip.MustParseAddr("10.0.0.1")},
			To:   bundle.End{Node: "b", Port: to, Addr: netip.MustParseAddr("10.0.0.2")},
			Why:  errors.New("no answer"),
		}
	}
	const first = "tried r0:1 (p0) 10.0.0.1 on a -> r1:1 10.0.0.2 on b: no answer"
	tests := []struct {
		tried []bundle.Finding
		want  string
	}{
		{[]bundle.Finding{way("r1:1")}, first},
		{[]bundle.Finding{way("r1:1"), way("r2:1"), way("r3:1")}, first + "; and 2 more ways, which NCCL_MESH_DEBUG=debug lists"},
	}
	for _, tt := range tests {
		if got := firstTried(tt.tried); got != tt.want {
			t.Errorf("firstTried(%v) = %q, want %q", tt.tried, got, tt.want)
		}
	}
}
