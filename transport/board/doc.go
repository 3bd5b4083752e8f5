// Package board implements completion pages, called boards: memory in which Go publishes the results of a
// connection's requests, so that C can answer NCCL's calls without calling Go. A board holds results
// only; the protocol is implemented in Go.
//
// Go writes the sequence of the next grant, the address of the grant ring, the number of times that the
// connection has been polled, and for each request whether it is done and the
// sizes of its messages. C writes which results it has returned to NCCL, and at which poll it last
// answered "not done". Each word has one writer, which stores it with release; the other
// side loads it with acquire.
//
// The memory stays mapped as long as the process lives, because C may read the
// board of a connection that is just closing. It is not mapped in a forked child.
package board
