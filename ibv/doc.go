// Package ibv is libibverbs, loaded at run time: no header and no library is needed to build or to load a program that
// imports it, and no cgo.
//
// Load opens the library and resolves its symbols by version; from there each verbs object has one type, and its methods
// carry the names of the verbs. Structures that C sees are generated (zabi_*.go, by tools/abigen); constants keep their C
// spelling. Where a release of rdma-core or a device lacks something optional, the call degrades or returns an error that
// is ErrNotSupported.
//
// What does the verbs is a Driver: libibverbs, or a simulation of adapters that tests hand to Use. Everything above it is
// the same for both, and so is the order of calls; the data path of libibverbs is a direct call.
//
// Ownership. A child keeps its parents: a queue pair its completion queues and protection domain, a region its domain, all
// of them the context. Close destroys the C object; it is idempotent, and on a parent with children it fails and names
// them. Methods of a closed object return net.ErrClosed.
//
// Memory. What a device or a posted request refers to must not lie on the Go heap: take it from Alloc and Carve. Requests
// and completions that are handed to PostSend, PostRecv and Poll are read or written during the call only; what they
// point to (the next request, the gather list) is reached by address and must lie in a Memory.
//
// Threads. All methods may be called from any goroutine. Of one queue pair, one caller posts at a time, and of one
// completion queue one caller polls at a time; Close of either must not overlap with those. Posting and polling allocate
// nothing.
//
// Errors of verbs are *Error and unwrap to the errno; failed completions are *WCError.
package ibv

//go:generate go run -C ../tools ./abigen -go ../ibv -layout ../ibv/testdata/layout-44.json
