// Package circuit carries lanes over RDMA through other nodes: a lane is a queue pair to
// the first, or from the last, of its relays; see package relay and relay/engine.
//
// The sender writes frames, a header and bytes gathered from the user's memory, into the
// first relay's ring. Grants, and how much has been freed and delivered, come into its
// posted receives. A part is delivered when the count of delivered frames covers its
// last one, and this side's adapter is done with that: it might send again from memory
// that has been given back.
//
// The receiver has small frames sent into its posted receives, and copies them. Of larger
// ones the header comes, is checked as a socket's is, and the bytes are read out of the
// last relay's ring, straight to where they go. Nobody holds a key of user memory: the
// queue pairs of both ends let their peers reach nothing.
//
// Like those of sockets these lanes are passive: what has to be done is done in calls of
// the connection's owner. What a relay or the peer says that it must not breaks the lane,
// not the connection.
package circuit
