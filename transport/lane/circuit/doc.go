// Package circuit carries lanes over RDMA through relays: each lane is a queue pair, at the sender to
// the first relay and at the receiver to the last; see package relay and relay/engine.
//
// The sender writes frames into the first relay's ring; a frame is a header and bytes gathered from the user's
// memory. Grants, and credits for frames that were freed and delivered, arrive in its
// posted receives. A part is delivered when the count of delivered frames includes its
// last frame and the write of that frame has completed, because until then the adapter may
// retransmit from the user's memory.
//
// Small frames arrive in the receiver's posted receives, from which it copies them. Of a larger
// frame only the header arrives; the receiver checks it as package tcp does, and reads the bytes from the
// last relay's ring directly into the user's buffer. No other node has a key of user memory: the
// queue pairs of both ends allow their peers no remote access.
//
// These lanes are polled, as sockets are: they work only inside calls of
// the connection's owner. A frame that breaks the protocol breaks the lane,
// not the connection, because a relay may have caused it.
package circuit
