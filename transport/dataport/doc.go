// Package dataport makes the TCP connections that lanes consist of.
//
// An [Endpoint] listens at the addresses of the mesh ports, bound to their
// interfaces. The side that accepts a lane announces it with Expect, the other
// dials it with Dial from the address and interface of its own port, and both
// prove with what they know from the session that they are the lane's two ends.
// The result is a stream of package sock, known to no poller, that belongs to the
// caller; of the hop of a circuit it is a connection.
//
// Whoever connects and does not prove to be an end of an expected lane is closed
// and counted. Such strangers hold a limited number of descriptors for a limited
// time; a dialler that is turned away in their crowd tries again.
package dataport
