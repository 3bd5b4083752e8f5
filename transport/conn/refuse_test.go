package conn

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
)

// A process that ends says so in the Refuse of a connection that is being set up, because its session may
// stay open while it relays. The Refuse of a connection that was set up has the connection's own reason.
func TestRefuseSaysThatTheProcessEnds(t *testing.T) {
	why := errors.New("why")
	for _, tt := range []struct {
		name     string
		ends, up bool
		want     uint8
	}{
		{"being set up", false, false, handshake.RefuseFailed},
		{"being set up, and the process ends", true, false, handshake.RefuseEnding},
		{"set up", false, true, handshake.RefuseFailed},
		{"set up, and the process ends", true, true, handshake.RefuseFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := NewProbe(&Env{Context: ctx}, nil, 7, true)
			c.firstSetup.finished.Store(tt.up)
			if tt.ends {
				cancel()
			}
			if diff := cmp.Diff(handshake.Message(&handshake.Refuse{Conn: 7, Code: tt.want, Text: "why"}), c.endMessage(false, why)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(handshake.Message(&handshake.Bye{Conn: 7}), c.endMessage(true, nil)); diff != "" {
				t.Errorf("in good order (-want +got):\n%s", diff)
			}
		})
	}
}

// A Refuse is an error of the kind that its code says. An unknown code only says that the peer refuses.
func TestRefuseKind(t *testing.T) {
	for code, want := range map[uint8]error{handshake.RefuseFailed: fault.ErrPeerRefused, handshake.RefuseEnding: fault.ErrPeerGone, 255: fault.ErrPeerRefused} {
		if got := refuseKind(code); got != want {
			t.Errorf("code %d: %v, want %v", code, got, want)
		}
	}
}
