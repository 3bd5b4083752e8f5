// Package fault has the kinds of what goes wrong with a connection, for all rooms of
// transport, and makes a panic one of them.
//
// A caller branches on kinds with errors.Is; every other error is this node's own
// trouble: a verb or a system call that failed. [ErrPeer] marks what the peer or the
// way to it caused, and is one of several kinds (a living peer that refuses is not
// gone). Messages name both nodes, the ports of the lane and what to do.
package fault
