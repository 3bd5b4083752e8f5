// Package verbs carries lanes over reliable connections of RDMA: a lane is a queue
// pair.
//
// A part is plain RDMA writes of a chunk each, and one with immediate for the rest,
// straight into the buffer that was granted; a grant is a write into the sender's
// ring. Receives are posted before the grant that relies on them, so a receiver is
// never not-ready. A part is delivered when its last write has completed.
//
// The protection domain and the registrations of a port are shared by all connections
// of the process; a connection's lanes over one port share a completion queue. Memory
// that a device may use lies outside the Go heap.
package verbs
