// Package comm is one-sided communication for programs that do not use NCCL: a rank writes into registered memory of any other
// rank, over all cables between them, through other nodes and despite failed cables, and the other rank waits for a signal. The
// C library libncclmesh has the same functions under the same names.
//
//	Process      the transport of this process, shared by its communicators
//	Comm         one rank of a job of several
//	Connection   from one rank to another, with a tag: a buffer on either side, and an epoch that counts signals
//	Buffer       memory that is registered with all connected ranks, for writes and signals at any offset
//	FIFO         a queue by which a processor or a GPU requests puts and signals of a connection without a call: package fifo
//
// # Use
//
// A process makes a Comm from an ID that one process has made (UniqueID), or from the address of rank 0 (InitRank). The ranks
// call Connect for each connection, each on both sides with the same tag, and then, all together, Setup. After that
// [Connection.Put] and [Connection.Signal] write to the other side, and [Connection.Wait] waits for its signals:
//
//	sender                          receiver
//	fill the local buffer
//	PutWithSignal            ──►    Wait returns: the data is in the buffer
//	Wait                     ◄──    Signal, when the buffer may be overwritten
//
// # Order
//
// Puts of a connection are not ordered among each other. A signal arrives after the data of all puts that were made before it to
// the same rank, and after all earlier signals to that rank. Put returns when the request is queued: the source must not change
// until Flush has returned.
//
// # Memory
//
// Buffers lie outside the Go heap and stay the caller's. They must stay mapped until they are deregistered or the Comm is closed.
// [Alloc] makes memory of this kind.
//
// # Threads
//
// All methods may be called from any goroutine, except that one goroutine at a time may wait on a connection. A Comm has a
// goroutine of its own that makes progress: it sends and receives, applies signals, and answers gets. Calls that wait make progress
// too, so that a wait is answered without the switch of a thread.
//
// # Errors
//
// [ResultOf] returns the kind of an error. An error of bad arguments leaves everything as it was. If a peer dies, or no path to it
// is left for NCCL_MESH_LANE_WAIT, every call that concerns it fails, and those that wait for it return: [ResultRemoteError].
package comm
