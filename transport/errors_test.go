package transport

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ncclmesh/handshake"
	"ncclmesh/transport/control"
	"ncclmesh/transport/limit"
)

// The kind of an error is what a user reads first: it must be true of the peer.
func TestKindOf(t *testing.T) {
	tries := func(err error, dead bool) error {
		return fmt.Errorf("control: %w", &control.PeerError{Dead: dead, Tries: []control.Try{{Err: err}}})
	}
	tests := []struct {
		name string
		err  error
		want error
	}{
		{"an orderly end", nil, ErrPeerGone},
		{"nobody listens", tries(unix.ECONNREFUSED, true), ErrPeerGone},
		{"another process listens", tries(handshake.ErrOtherProcess, true), ErrPeerGone},
		{"it rejects", tries(&handshake.RejectError{Code: handshake.RejectClosed}, true), ErrPeerRefused},
		{"it speaks another version", tries(&handshake.VersionError{Theirs: 1}, true), ErrPeerRefused},
		{"silence", tries(unix.ETIMEDOUT, false), ErrUnreachable},
		{"nonsense", fmt.Errorf("%w: message 3 follows message 1", control.ErrProtocol), ErrProtocol},
		{"no descriptor here", limit.Own(unix.EMFILE), errOwn},
	}
	for _, tt := range tests {
		got := kindOf(tt.err)
		if got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
		if own := tt.want == errOwn; errors.Is(got, ErrPeer) == own {
			t.Errorf("%s: %v is a peer's fault: %v", tt.name, got, !own)
		}
	}
	if errors.Is(ErrPeerGone, ErrPeerRefused) {
		t.Error("kinds run together")
	}
}

// A node that is out of descriptors does not look for the fault at its peer.
func TestNoDescriptorForALane(t *testing.T) {
	leaks(t)
	a, b := tcpTransport(t, 1), tcpTransport(t, 1)
	l, h := listen(t, a)
	first := b.Dial(h)
	var ends []interface{ Close() error }
	await(t, "a first connection", func() bool {
		s, err := first.Poll()
		if err != nil {
			t.Fatal(err)
		}
		if s != nil {
			ends = append(ends, s)
		}
		return s != nil
	})
	await(t, "its other half", func() bool {
		r, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if r != nil {
			ends = append(ends, r)
		}
		return r != nil
	})
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = 0 // what is open stays
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	var err error
	second := b.Dial(h)
	await(t, "the failure", func() bool {
		_, err = second.Poll()
		return err != nil
	})
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if errors.Is(err, ErrPeer) || !limit.IsOwn(err) || !strings.Contains(err.Error(), "(ulimit -n)") {
		t.Errorf("%v, want this node's limit and no peer", err)
	}
	await(t, "the peer to hear of it", func() bool {
		_, err = l.Accept()
		return err != nil
	})
	if !errors.Is(err, ErrPeer) {
		t.Errorf("the peer's accept: %v, want ErrPeer", err)
	}
	for _, e := range append(ends, l) {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
