package fault

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"ncclmesh/guard"
)

// All that a peer, or the way to it, causes is ErrPeer, and each kind only itself
// beside that.
func TestKinds(t *testing.T) {
	kinds := []struct {
		err  error
		peer bool
	}{
		{ErrPeerGone, true}, {ErrPeerClosed, true}, {ErrPeerRefused, true}, {ErrUnreachable, true}, {ErrLane, true}, {ErrProtocol, true},
		{ErrUsage, false}, {ErrInternal, false}, {ErrNoPorts, false}, {ErrOwn, false}, {ErrDevice, false},
	}
	for i, k := range kinds {
		if got := errors.Is(k.err, ErrPeer); got != k.peer {
			t.Errorf("%v is of the peer's: %v, want %v", k.err, got, k.peer)
		}
		for j, other := range kinds {
			if got := errors.Is(k.err, other.err); got != (i == j) {
				t.Errorf("%v is %v: %v", k.err, other.err, got)
			}
		}
		if errors.Is(ErrPeer, k.err) {
			t.Errorf("any fault of a peer's is %v", k.err)
		}
	}
}

// What a guarded function says comes out as it is; its panic is an internal error that
// names what it served, and the log has the stack.
func TestGuarded(t *testing.T) {
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	if err := Guarded(log, "conn 1", func() error { return nil }); err != nil {
		t.Errorf("no error became %v", err)
	}
	if err := Guarded(log, "conn 1", func() error { return ErrLane }); err != ErrLane {
		t.Errorf("%v became %v", ErrLane, err)
	}
	if logged.Len() > 0 {
		t.Errorf("logged without a panic: %s", &logged)
	}
	err := Guarded(log, "conn 1", func() error { panic("no such lane") })
	var p *guard.Panic
	if !errors.Is(err, ErrInternal) || errors.Is(err, ErrPeer) || !errors.As(err, &p) || p.Value != "no such lane" || !strings.Contains(err.Error(), "conn 1") {
		t.Errorf("a panic became %v, want ErrInternal that names conn 1 and the panic", err)
	}
	for _, want := range []string{"level=ERROR", "conn 1", "no such lane", "fault_test.go"} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("the log lacks %q: %s", want, &logged)
		}
	}
}

// The text of an error has no more than one line.
func TestOneLine(t *testing.T) {
	err := errors.Join(errors.New("first"), errors.Join(errors.New("second"), ErrLane))
	if got, want := OneLine(err), "first; second; lane broken"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
