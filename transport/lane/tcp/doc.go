// Package tcp carries lanes over TCP: each lane is a socket.
//
// Grants, parts and acknowledgements are frames. The kernel copies between the socket
// and the user's buffers inside the calls of the connection's owner. Between those calls nothing
// happens, so an idle socket costs nothing and a stopped one touches no buffer. The header of a part is checked against
// the grants before a byte of the part is written to a buffer.
//
// A part is accepted when this side's kernel has all of it, and delivered when the receiver
// has acknowledged it. The test call that finds the last receive done sends its acknowledgement at once, because NCCL may
// not call again. While other receives are outstanding NCCL does call again, so the acknowledgement
// may be delayed and cover several parts.
//
// An eager message (see lane.Eager) is a part that is sent before its grant. It is passed to the message layer as a whole,
// and its acknowledgement is sent with later ones. A frame of its own reports the buffer that
// it was copied into.
package tcp
