// Package bootstrap lets the ranks of a job find each other, exchange small data and wait for each other.
//
//	Root    serves one job; it lives in the process that made the job's ID
//	ID      what a rank needs to join a job: the handle of the root's listener, 128 bytes
//	Member  a rank's place in the job: AllGather, Barrier, Leave
//
// A rank may also join by an address, at which the process of rank 0 listens: see address.go.
//
// # Connections
//
// A member and the root have one connection of package transport in each direction. Each runs over whatever cables there are,
// through relays, and survives the failure of a cable. The member dials the handle in the ID. Its first message has a handle
// of its own, which the root dials. A member in the root's own process uses two queues instead.
//
//	member                              root
//	join{rank, size, handle}     ──►
//	                             ◄──    table{handles of all ranks}, once all have joined
//	gather{number, data}         ──►
//	                             ◄──    gathered{number, data of all ranks}, once all have called
//	leave                        ──►
//
// In the place of a table or of gathered data the root may send failed{number, kind, text}. The root measures the time-out of
// each call, because only the root knows which ranks are missing, and its text names them. A member waits a little longer
// than its time-out, in case the root does not answer.
//
// Messages over connections are sealed with a key that follows from the ID: see seal.go.
//
// # Errors
//
// An error wraps a kind of package fault: ErrUsage if the ranks do not fit together, and one of the ErrPeer kinds if a rank or
// the root is missing, has left or has died. A failed call of AllGather or Barrier fails on all ranks; the next call may
// succeed, unless a rank is gone.
//
// # Goroutines
//
// A Root has one goroutine, which polls the connections of all members. The methods of a Member poll in the caller, one caller
// at a time.
package bootstrap
