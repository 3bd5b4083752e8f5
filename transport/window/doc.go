// Package window lets other processes of a node look at the counters of one: a socket that hands out a descriptor of its
// page (package stats), which can only be read.
//
// The socket has an abstract name, @ncclmesh/ and the id of the process on the mesh: abstract names belong to the network
// name space, which containers that use the node's network share, as they share neither process numbers nor files. Or it is a
// file, where somebody names one.
//
//	who looks             the process
//	connect        ──►    whose is it (SO_PEERCRED)? this user's, or root's:
//	               ◄──    "ncclmesh 1" and the descriptor
//	               ◄──    "ncclmesh 0" to anybody else; closed in either case
//
// A goroutine waits in Go's poller, as those of the control plane do: no thread, and no wake-up as long as nobody looks.
// Nothing that NCCL waits for is held meanwhile. A forked child has neither socket nor descriptor.
package window
