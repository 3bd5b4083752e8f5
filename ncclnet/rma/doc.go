// Package rma is NCCL's remote memory access over the mesh: what the calls of its RMA plugin interface mean, which also carries
// its GPU-initiated networking (GIN) where that runs by a proxy thread.
//
//	Group     the ranks of a communicator, each connected with each (NCCL's collComm)
//	Window    memory that all ranks register in the same order (a symmetric window)
//	Context   an independent series of operations of a group (NCCL's rmaCtx)
//	Request   a put, signal, get or flush that is outstanding
//
// It depends on no version of the interface: package ncclnet makes numbers for NCCL of its types, and results of its errors.
//
// # Operations
//
// A link is what a rank knows of another rank: a peer of package onesided, and a queue of the operations that cannot begin there
// yet, because too many are outstanding or because the other rank has not registered a window yet. Operations of a link begin in their
// order, whatever their context, so that each signal comes after all earlier operations to that rank.
//
// # Progress
//
// NCCL's GIN thread calls Progress all the time. Its host RMA thread never does, and a rank that only waits for signals calls
// nothing at all. So each group has a goroutine that makes progress while no thread of NCCL does: continuously for a while after
// something has moved, and else at least every millisecond.
//
// # Threads
//
// All calls may come from any thread, except that a window must not be used after Deregister has begun, nor the group after Close.
// Connect, Register, Deregister and Close may wait; all others do not. Posting and testing allocate nothing, unless more requests
// are outstanding than NCCL has said. A link's mutex is locked before the mutexes of package onesided, and never held across a wait.
package rma
