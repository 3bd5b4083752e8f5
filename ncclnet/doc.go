// Package ncclnet gives NCCL's network-plugin calls their meaning over a
// transport: devices and properties, listen, connect and accept, memory
// handles, requests, and NCCL's log. It follows no particular version of the
// plugin interface and knows nothing of C; package capi turns the calls of each
// version into calls of [Net]. NCCL's profiler hears from it too.
//
// What all communicators of a process share, and others may hold with them, is a
// [Process]: the transport, open while it has a holder.
//
// Rules that hold throughout:
//
//   - No call blocks. A zero [Handle] with ncclSuccess means "not yet, call
//     again", as NCCL expects of connect, accept, isend and irecv.
//   - What NCCL is given to keep is a [Handle], a number that is looked up and
//     checked on every call, never a pointer. A stale or foreign one is an
//     error, not a crash.
//   - Calls may come from any thread. The lookups on the data path take no
//     lock, and Isend, Irecv and Test allocate nothing.
//   - Errors are logged here, once, and nowhere below; what goes back to NCCL
//     is the [Result] that the error stands for.
package ncclnet
