package transport

import (
	"errors"

	"ncclmesh/guard"
	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/limit"
)

// kindOf returns the kind of error to report for a session that ended with err, or that could not be made because of
// err. A nil err means that the peer ended the session. An error caused by a lack of resources on this node is not
// attributed to the peer.
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
