// Package ccall calls C functions by address, without cgo and without allocating, and finds loaded C libraries.
//
// It takes integers and pointers only. The called function runs on the thread's system stack, as under cgo: the host's
// signal handlers work and the Go scheduler may use the processor for something else. It must not call back into Go,
// and it must not keep a pointer into Go memory.
package ccall
