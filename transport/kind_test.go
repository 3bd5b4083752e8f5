package transport

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"ncclmesh/handshake"
	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/limit"
)

// The kind of an error must be right, because users read it first.
func TestKindOf(t *testing.T) {
	tries := func(err error, dead bool) error {
		return fmt.Errorf("control: %w", &control.PeerError{Dead: dead, Tries: []control.Try{{Err: err}}})
	}
	tests := []struct {
		name string
		err  error
		want error
	}{
		{"an orderly end", nil, fault.ErrPeerGone},
		{"nobody listens", tries(unix.ECONNREFUSED, true), fault.ErrPeerGone},
		{"another process listens", tries(handshake.ErrOtherProcess, true), fault.ErrPeerGone},
		{"it rejects", tries(&handshake.RejectError{Code: handshake.RejectClosed}, true), fault.ErrPeerRefused},
		{"it speaks another version", tries(&handshake.VersionError{Theirs: 1}, true), fault.ErrPeerRefused},
		{"silence", tries(unix.ETIMEDOUT, false), fault.ErrUnreachable},
		{"nonsense", fmt.Errorf("%w: message 3 follows message 1", control.ErrProtocol), fault.ErrProtocol},
		{"other settings", fmt.Errorf("control: %w", &control.SettingsError{}), fault.ErrUsage},
		{"no descriptor here", limit.Own(unix.EMFILE), fault.ErrOwn},
	}
	for _, tt := range tests {
		got := kindOf(tt.err)
		if got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
		if own := tt.want == fault.ErrOwn || tt.want == fault.ErrUsage; errors.Is(got, fault.ErrPeer) == own {
			t.Errorf("%s: %v is a peer's fault: %v", tt.name, got, !own)
		}
	}
	if errors.Is(fault.ErrPeerGone, fault.ErrPeerRefused) {
		t.Error("kinds run together")
	}
}
