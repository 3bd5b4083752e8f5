// Package ncclnet implements NCCL's network-plugin calls with a
// transport: devices and properties, listen, connect and accept, memory
// handles, requests, and NCCL's log. It depends on no particular version of the
// plugin interface and on no C code; package capi translates the calls of each
// version into calls of [Net]. It also emits events for NCCL's profiler.
//
// All communicators of a process share one
// [Process], which holds the transport. The transport is open while the Process has a reference.
//
// Rules for the whole package:
//
//   - No call blocks. A zero [Handle] with ncclSuccess means "not yet, call
//     again", as NCCL expects of connect, accept, isend and irecv.
//   - NCCL gets a [Handle] to keep, which is a number that is looked up and
//     checked on every call, and never a pointer. A stale or foreign one is an
//     error, not a crash.
//   - Calls may come from any thread. The lookups on the data path take no
//     lock, and Isend, Irecv and Test allocate no memory.
//   - Errors are logged here, once, and nowhere below. NCCL gets
//     the [Result] for the kind of error.
package ncclnet
