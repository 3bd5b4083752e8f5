// Package sock is the edge between this module and the network: sockets for streams and for datagrams, and the interfaces
// that they are bound to.
//
// A [Network] opens them. There are two: [Kernel], which is the network of the machine, and a model for tests. What a
// network opens belongs to the caller until Close; a descriptor has one owner for its whole life, which also marks it for
// forked children to close (see transport/forkfd).
//
// A [Conn] is a stream whose calls wait, in Go's poller. A [Stream] is one whose calls do not, for the data path: it sends
// from and receives into memory outside the Go heap, and no poller knows it.
package sock
