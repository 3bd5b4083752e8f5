// Command capi is the plugin itself, built as a C shared library that NCCL
// loads. It exports the vtables ncclNetPlugin_v5 to ncclNetPlugin_v12 and
// nothing else.
//
// The C half (abi.h, vtable.c, host.c, profiler.c) has the memory layouts of NCCL's
// interface, the vtables, a guard that turns forked children away, and the few
// things of the C library that Go cannot see. The Go half converts the calls and
// hands them to package ncclnet. Neither decides anything.
//
// A panic does not leave the library: every exported function recovers, logs the
// stack and returns ncclInternalError.
package main
