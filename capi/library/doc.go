// Command library is libncclmesh, built as a C shared library: package comm for programs in C, C++ and Python. Its interface is
// ncclmesh.h; ncclmesh.py is the same for Python.
//
// The C half (api.c, log.c) has the public functions: it refuses forked children, keeps the text of the last error of each thread, and
// passes all else to the Go half, which looks up the objects and calls package comm. Neither half decides anything.
//
// Communicators, connections and buffers are numbers for C, which are looked up on every call: a stale or foreign one is an
// error. All memory that C gets lies outside the Go heap.
//
// A panic does not leave the library: every exported function recovers, logs the stack and returns ncclmeshInternalError.
package main
