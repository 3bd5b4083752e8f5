// Package message carries the messages of a connection over its bundle of lanes:
// requests, grants, the split of a message into parts.
//
// The receiver grants a buffer; the sender writes only into what was granted, splitting
// a message into parts, one part to a lane; the immediate of a part's end names slot,
// sub-receive and part. A send is done when the lanes have delivered its parts. What
// carries a lane is not known here.
//
// Where all lanes allow it, a short message goes before its grant, and the receiver finds its
// buffer: see lane.Eager, eager.go for the sender's side and stash.go for the receiver's. What
// the receiver would send then waits, if need be until the sender says that it is missed: over
// the lane, for a receiver that looks, and over the session, for one whose program waits for
// something else.
//
// A part remembers the lane that carries it, and a receive the one that carried its grant,
// so that what was lost with a lane can go over another; see failover.go.
//
// What a lane has of the traffic is its weight, as package path has decided, or less while
// it is measured to be slower than that promises beside the others; see speed.go.
//
// # Threads and ownership
//
// Isend, Irecv and Test never block: nil, or false, means "not yet, call again". They
// run on the caller's thread with the connection's bundle locked by TryLock: when the
// control side holds it they answer "not yet". They allocate nothing, but for the
// word to a peer that a message has waited a millisecond for it. A panic in them
// passes through, with the bundle unlocked, to whoever recovers it, who calls Fail on
// the connection.
//
// Who wants to know which lane carried what is a [Watch]: Test tells it of the parts of
// its request, before it reports that done.
package message
