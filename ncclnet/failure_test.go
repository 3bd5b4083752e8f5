package ncclnet

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/transport/fault"
)

func TestNews(t *testing.T) {
	type answer struct{ IsNew, GoingOn bool }
	var f failure
	start := time.Unix(1000, 0)
	var got []answer
	for _, call := range []struct {
		text  string
		after time.Duration
	}{
		{"peer lost", 0},
		{"peer lost", time.Second},
		{"another", time.Second},
		{"another", useAfterFailure},
		{"another", useAfterFailure + 1},
		{"another", 2 * useAfterFailure},
		{"peer lost", 3 * useAfterFailure},
	} {
		isNew, tooLong := f.record(call.text, start.Add(call.after))
		got = append(got, answer{isNew, tooLong})
	}
	want := []answer{{true, false}, {false, false}, {true, false}, {false, false}, {false, true}, {false, false}, {true, false}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("news (-want +got):\n%s", diff)
	}
}

// Attempts that were in progress when one failed, and fail with the same error, are logged in one line. An attempt that
// begins later belongs to another communicator, and its error is logged again, whether or not a connection came up in
// between.
func TestSetUpsFailAlike(t *testing.T) {
	n := newTestNet(t)
	ctx := n.init()
	refused := fmt.Errorf("node-b: %w", fault.ErrPeer)
	fail := func(attempts int) {
		t.Helper()
		n.f.notYet["connect"] = attempts // all begin before the first fails
		wires := make([][HandleSize]byte, attempts)
		for i := range wires {
			var r Result
			_, wires[i], r = n.Listen(ctx, 0)
			n.ok("listen", r)
			_, r = n.Connect(ctx, 0, &wires[i])
			n.ok("connect", r)
		}
		n.f.refuse["connect"] = refused
		for i := range wires {
			if _, r := n.Connect(ctx, 0, &wires[i]); r != ncclRemoteError {
				t.Errorf("connect: %v, want ncclRemoteError", r)
			}
		}
		delete(n.f.refuse, "connect")
	}
	line := "2 NET/Mesh : connect: node-b: remote error (ncclRemoteError)"
	for round := range 3 {
		n.logged()
		fail(4)
		if diff := cmp.Diff(line, n.logged()); diff != "" {
			t.Errorf("log of communicator %d (-want +got):\n%s", round, diff)
		}
		if round == 1 {
			n.connection(ctx)
		}
	}
}

// The error of accept is logged like that of connect: once for a listener, although NCCL calls repeatedly, and again
// for a later listener.
func TestAcceptsFailAlike(t *testing.T) {
	n := newTestNet(t)
	ctx := n.init()
	line := "2 NET/Mesh : accept: node-b: remote error (ncclRemoteError)"
	for round := range 2 {
		l, _, r := n.Listen(ctx, 0)
		n.ok("listen", r)
		n.f.refuse["accept"] = fmt.Errorf("node-b: %w", fault.ErrPeer)
		n.logged()
		for range 3 {
			if _, r := n.Accept(l); r != ncclRemoteError {
				t.Errorf("accept: %v, want ncclRemoteError", r)
			}
		}
		if diff := cmp.Diff(line, n.logged()); diff != "" {
			t.Errorf("log of communicator %d (-want +got):\n%s", round, diff)
		}
	}
}
