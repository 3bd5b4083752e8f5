package transport

import (
	"errors"

	"ncclmesh/guard"
	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/limit"
)

// kindOf says what has happened to a peer that a session ended with this error,
// nil included, or could not be made with. What this node lacked itself is no
// peer's fault.
func kindOf(err error) error {
	var peer *control.PeerError
	var own *guard.Panic
	var differ *control.SettingsError
	switch {
	case err == nil:
		return fault.ErrPeerGone
	case errors.As(err, &own):
		return fault.ErrInternal
	case errors.As(err, &differ):
		return fault.ErrUsage
	case errors.As(err, &peer) && peer.Refused():
		return fault.ErrPeerRefused
	case errors.As(err, &peer) && peer.Dead:
		return fault.ErrPeerGone
	case errors.As(err, &peer):
		return fault.ErrUnreachable
	case errors.Is(err, control.ErrProtocol):
		return fault.ErrProtocol
	case limit.IsOwn(err):
		return fault.ErrOwn
	}
	return fault.ErrPeerGone
}
