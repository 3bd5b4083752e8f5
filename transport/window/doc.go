// Package window lets other processes of a node read the counters of a process: it serves, on a Unix socket, a read-only
// descriptor of the process's statistics page (package stats).
//
// The socket has an abstract name: @ncclmesh/ and the process's id on the mesh. Abstract names belong to the network
// namespace, which containers that use the node's network share, although they share neither process numbers nor files.
// If the user names a path, the socket is a file there.
//
//	reader                the process
//	connect        ──►    is its user (SO_PEERCRED) this user or root?
//	               ◄──    if so, "ncclmesh 1" and the descriptor
//	               ◄──    if not, "ncclmesh 0"; closed in either case
//
// A goroutine waits in Go's network poller, so that the window needs no thread, and no wake-up until a reader connects.
// It holds no lock that NCCL may wait for. A forked child closes the socket and the descriptor.
package window
