// Package tcp carries lanes over TCP: a lane is a socket.
//
// Grants, parts and acknowledgements are frames; the kernel copies between the socket
// and the user's buffers, inside the calls of the connection's owner, and nothing
// happens between them: an idle socket costs nothing, and a stopped one touches no
// buffer. A peer's frame is checked against what was granted before a byte of it is
// placed.
//
// A part is accepted when this side's kernel has it, and delivered when the receiver
// has acknowledged it. As nothing happens between calls, an acknowledgement goes out
// with the test that finds the last receive done; while others are outstanding their
// owner calls again, and it may wait a little for company.
//
// An eager message (see lane.Eager) is a part that comes before its grant: it goes to
// package message whole, and its acknowledgement waits for others. Where it went is told
// by a frame of its own.
package tcp
