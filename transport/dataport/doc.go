// Package dataport makes and authenticates the TCP connections of lanes.
//
// An [Endpoint] listens on the addresses of the mesh ports, bound to their
// interfaces. The side that accepts a lane announces it with Expect. The other side
// dials it with Dial, from the address and interface of its own port. Both
// authenticate with keys of the session as the lane's two ends.
// The result is a stream of package sock, registered with no poller, that belongs to the
// caller; for the hop of a circuit it is a connection.
//
// A connection that does not authenticate as an end of an expected lane is closed
// and counted. The number and the lifetime of such connections are limited. A dialler whose connection
// was evicted because of these limits tries again.
package dataport
