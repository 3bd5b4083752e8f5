package fault

import "errors"

var (
	// ErrPeer is any of those below that follow it: the peer, or the way to it.
	ErrPeer = errors.New("remote error")
	// ErrPeerGone: the peer's process has ended.
	ErrPeerGone error = peerError("peer gone")
	// ErrPeerClosed: the peer, which may live on, has closed the connection.
	ErrPeerClosed error = peerError("closed by the peer")
	// ErrPeerRefused: the peer lives, and said why it does not go on.
	ErrPeerRefused error = peerError("refused by the peer")
	// ErrUnreachable: nothing that is sent to the peer is answered.
	ErrUnreachable error = peerError("peer not reachable")
	// ErrLane: a lane between two nodes broke; which of them, or the cable, is
	// to blame is not known.
	ErrLane error = peerError("lane broken")
	// ErrProtocol: the peer said or wrote what it must not.
	ErrProtocol error = peerError("peer broke the protocol")

	// ErrUsage: the caller broke the rules of the package.
	ErrUsage = errors.New("invalid use")
	// ErrInternal: the library found itself inconsistent.
	ErrInternal = errors.New("internal error")
	// ErrNoPorts: this node has no port that the configuration lets us use.
	ErrNoPorts = errors.New("no usable port")
	// ErrOwn: this node has run out of something.
	ErrOwn = errors.New("local limit")
	// ErrDevice: something failed at this end of a lane.
	ErrDevice = errors.New("local device failed")
)

// peerError is a kind of ErrPeer.
type peerError string

func (e peerError) Error() string        { return string(e) }
func (e peerError) Is(target error) bool { return target == ErrPeer }
