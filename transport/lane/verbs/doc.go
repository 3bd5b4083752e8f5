// Package verbs carries lanes over RDMA reliable connections: each lane is a queue pair.
//
// A part is sent as plain RDMA writes of one chunk each, and a write with immediate for the rest,
// directly into the granted buffer; a grant is a write into the sender's
// ring. A part of a put has no immediate and consumes no receive. Receives are posted before the grant that relies on them, so that no receiver-not-ready
// error can occur. A part is delivered when its last write has completed.
//
// All connections of the process share the protection domain and the registrations of a port;
// a connection's lanes over one port share a completion queue. Memory that a device may access
// is outside the Go heap.
package verbs
