package path

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/routing"
)

// TestDistinct checks that an error which several probes have in common is given once, whatever the numbers of
// the probes.
func TestDistinct(t *testing.T) {
	trial := func(n int, why error) error {
		name := fmt.Sprintf("na -> nc conn %d", n)
		return &probeError{fmt.Errorf("%s: nc says: %w", name, why), name}
	}
	full := errors.New("no descriptors left")
	tests := []struct {
		name string
		errs []error
		want string
	}{
		{"none", []error{nil, nil}, "<nil>"},
		{"one", []error{nil, full}, "no descriptors left"},
		{"one reason of four trials", []error{trial(2, full), trial(3, full), trial(5, full), trial(7, full)}, "na -> nc conn 2: nc says: no descriptors left"},
		{"two reasons", []error{trial(2, full), trial(3, io.EOF), trial(4, full)}, "na -> nc conn 2: nc says: no descriptors left; na -> nc conn 3: nc says: EOF"},
		{"of several before", []error{distinct(trial(2, full), io.EOF), distinct(io.EOF, trial(3, full))}, "na -> nc conn 2: nc says: no descriptors left; EOF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := distinct(tt.errs...)
			if got := fmt.Sprint(err); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if len(tt.errs) > 2 && !errors.Is(err, full) {
				t.Errorf("%v is not the error that it says", err)
			}
		})
	}
}

// TestNoPathError checks that the error of a search tells why there is neither a direct nor a relayed path, has the kind of the first
// alone, and holds the reason of the second.
func TestNoPathError(t *testing.T) {
	none := &routing.NoRouteError{Reason: "no neighbour answered on e1", Foreign: []string{"e1"}}
	err := fmt.Errorf("conn 1: %w", &noPathError{fault.ErrLane, distinct(fault.ErrUsage, none)})
	const want = "conn 1: lane broken. There is no route through other nodes either: invalid use; peer not reachable: no route through other nodes: no neighbour answered on e1. " +
		"Check the cables, that each node between runs a rank or ncclmesh relay, that all have NCCL_MESH_RELAY=auto and the same NCCL_MESH_KEY or none, and that no firewall blocks UDP port 20045. " +
		"A node at e1 has another NCCL_MESH_KEY, or none: all nodes must have the same"
	if got := err.Error(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if !errors.Is(err, fault.ErrLane) || errors.Is(err, fault.ErrUsage) || errors.Is(err, fault.ErrUnreachable) {
		t.Errorf("%v is not of the kind of the direct paths' error alone", err)
	}
	var got *routing.NoRouteError
	if !errors.As(err, &got) || got != none {
		t.Errorf("it holds %v, want %v", got, none)
	}
	if !errors.Is(none, fault.ErrUnreachable) {
		t.Errorf("%v is not %v", none, fault.ErrUnreachable)
	}
}
