// Command capi is the plugin itself, built as a C shared library that NCCL
// loads. It exports the vtables ncclNetPlugin_v5 to ncclNetPlugin_v12, ncclRmaPlugin_v13 to ncclRmaPlugin_v15 and ncclTunerPlugin_v2 to
// ncclTunerPlugin_v6, and nothing else.
//
// The C half (abi.h, rma_abi.h, vtable.c, rma.c, host.c, profiler.c, board.c, tuner.c) contains the memory layouts of NCCL's
// interface, the vtables, a check that refuses calls in forked children, the functions of the C library
// that Go cannot call, and the answers that need no call of Go. The Go half converts the calls and
// passes them to package ncclnet. Neither half decides anything.
//
// A panic does not leave the library: every exported function recovers, logs the
// stack and returns ncclInternalError.
package main
