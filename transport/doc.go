// Package transport carries NCCL's one-way connections over the cables of a mesh.
//
// A Transport is one process's view of its node: the ports it may use, each with
// an open verbs device, and the control plane that sets connections up. A
// connection has a send half ([SendConn]) and a receive half ([RecvConn]) and
// uses one or more lanes, each a connected queue pair over one path between a
// local and a remote port, or, where two nodes have no RDMA path, a TCP socket.
//
// # Data path
//
// The receiver grants a buffer by one RDMA write into a ring that lies at the
// sender; the sender writes only into what was granted, splitting a message into
// parts, one part to a lane; the last write of a part carries an immediate that
// names slot, sub-receive and part. Receives are posted before the grant that
// relies on them, so a receiver is never not-ready.
//
// Over TCP the same grants and parts are frames on the lane's socket; the kernel
// copies between it and the user's buffers, inside the calls below, and nothing
// happens between them. A peer's frame is checked against what was granted before
// a byte of it is placed. A part is accepted when the sender's kernel has it, and
// delivered when the receiver has acknowledged it; a send is done when its parts
// are delivered. As nothing happens between calls, an acknowledgement goes out with
// the test that finds the last receive done; while others are outstanding their
// owner calls again, and it may wait a little for company.
//
// # Threads and ownership
//
// Listen, Dial, Accept, Poll, Isend, Irecv and Test never block: nil, or false,
// means "not yet, call again". Isend, Irecv and Test run on the caller's thread
// under the connection's mutex, taken with TryLock: when the control side holds
// it they answer "not yet". They allocate nothing. Memory that a device or NCCL
// may keep lies outside the Go heap.
//
// # Locks
//
// A connection's mutex is held while its queue pairs drain, for up to two seconds,
// and while they are destroyed, which waits until the events that have been read of
// them are acknowledged. So whoever may be waited for takes no connection's mutex:
//
//	goroutine                          may take, one at a time
//	a device's events                  a port's queueMu, a session's mutex
//	a session's messages               Transport.mu, Listener.mu, a session's mutex
//	NCCL's threads, set-ups, closing   conn.mu, then any of those below
//
// Both of the former end a connection with [conn.fail] or by delivering the peer's
// word, which set its ending without a mutex. The order is: conn.mu; a port's regMu,
// held over registrations; the mutexes of package ibv, child before parent. All
// others (Transport.mu, Listener.mu, Dialing.mu, queueMu, a session's) are leaves:
// nobody waits, or takes another of this package, while holding one.
//
// # Panics
//
// The process is not ours. A panic in a call of the owner passes through, with the
// mutex released, to whoever recovers it, who calls Fail on the connection; one in a
// goroutine of this package becomes, by package guard, the error of the set-up, the
// connection or the session that it serves. Close gives back all the same.
//
// # Errors
//
// [ErrPeer] marks what the peer or the way to it caused, and is one of several
// kinds (a living peer that refuses is not gone), [ErrUsage] a mistake of
// the caller, [ErrNoPorts] a node without a usable port. Everything else is this
// node's own trouble: a verb or a system call that failed. Messages name both
// nodes, the ports of the lane and what to do.
package transport
