package transport

import (
	"errors"

	"ncclmesh/guard"
	"ncclmesh/transport/control"
	"ncclmesh/transport/limit"
)

// What a caller branches on; every other error is a local failure of a verb or
// of the system.
var (
	// ErrPeer is any of those below that follow it: the peer, or the way to it.
	ErrPeer = errors.New("remote error")
	// ErrPeerGone: the peer's process has ended.
	ErrPeerGone = peerError("peer gone")
	// ErrPeerClosed: the peer, which may live on, has closed the connection.
	ErrPeerClosed = peerError("closed by the peer")
	// ErrPeerRefused: the peer lives, and said why it does not go on.
	ErrPeerRefused = peerError("refused by the peer")
	// ErrUnreachable: nothing that is sent to the peer is answered.
	ErrUnreachable = peerError("peer not reachable")
	// ErrLane: a lane between two nodes broke; which of them, or the cable, is
	// to blame is not known.
	ErrLane = peerError("lane broken")
	// ErrProtocol: the peer said or wrote what it must not.
	ErrProtocol = peerError("peer broke the protocol")

	// ErrUsage: the caller broke the rules of this package.
	ErrUsage = errors.New("invalid use")
	// ErrInternal: this package found itself inconsistent.
	ErrInternal = errors.New("internal error")
	// ErrNoPorts: this node has no port that the configuration lets us use.
	ErrNoPorts = errors.New("no usable port")
)

// peerError is a kind of ErrPeer.
type peerError string

func (e peerError) Error() string        { return string(e) }
func (e peerError) Is(target error) bool { return target == ErrPeer }

// kindOf says what has happened to a peer that a session ended with this error,
// nil included, or could not be made with. What this node lacked itself is no
// peer's fault.
func kindOf(err error) error {
	var peer *control.PeerError
	var own *guard.Panic
	switch {
	case err == nil:
		return ErrPeerGone
	case errors.As(err, &own):
		return ErrInternal
	case errors.As(err, &peer) && peer.Refused():
		return ErrPeerRefused
	case errors.As(err, &peer) && peer.Dead:
		return ErrPeerGone
	case errors.As(err, &peer):
		return ErrUnreachable
	case errors.Is(err, control.ErrProtocol):
		return ErrProtocol
	case limit.IsOwn(err):
		return errOwn
	}
	return ErrPeerGone
}

// errOwn marks what this node has run out of.
var errOwn = errors.New("local limit")
