package transport

import "errors"

// What a caller branches on; every other error is a local failure of a verb or
// of the system.
var (
	// ErrPeer: the peer is gone, closed the connection, or cannot be reached.
	ErrPeer = errors.New("peer lost")
	// ErrUsage: the caller broke the rules of this package.
	ErrUsage = errors.New("invalid use")
	// ErrInternal: this package found itself inconsistent.
	ErrInternal = errors.New("internal error")
	// ErrNoPorts: this node has no port that the configuration lets us use.
	ErrNoPorts = errors.New("no usable port")
)
