package conn

import (
	"fmt"
	"syscall"
	"testing"

	"ncclmesh/ibv"
	"ncclmesh/transport/fault"
)

// The reason names neither the connection nor the queue pair, which would fill a message to the peer.
func TestReason(t *testing.T) {
	request := &ibv.WCError{Status: ibv.IBV_WC_RETRY_EXC_ERR, StatusText: "transport retry counter exceeded", QPN: 7, Peer: "b"}
	verb := &ibv.Error{Op: "modify_qp", Device: "r0", Port: 1, Errno: syscall.ETIMEDOUT}
	for _, tt := range []struct {
		why  error
		want string
	}{
		{fmt.Errorf("%w: a -> b conn 1: lane 0: %w; check the cable", fault.ErrLane, request), "transport retry counter exceeded (IBV_WC_RETRY_EXC_ERR)"},
		{fmt.Errorf("%w: a -> b conn 1: lane 0: %w", fault.ErrLane, verb), "ibv: modify_qp on r0 port 1: connection timed out (ETIMEDOUT)"},
		{fmt.Errorf("%w: a -> b conn 1: no answer", fault.ErrLane), "lane broken: a -> b conn 1: no answer"},
	} {
		if got := (LaneFailure{Why: tt.why}).Reason(); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.why, got, tt.want)
		}
	}
}
