// Package nccl calls the NCCL and the CUDA driver of this node. It loads both libraries when it is asked to, so that a
// command that uses it also runs where neither is installed.
//
// [Open] returns the libraries. A [Rank] is one GPU's part in a communicator: the goroutine that makes it must have locked
// its thread, and must make all other calls of it too, because CUDA keeps the current device by thread. NCCL reads the
// environment of the process once, at the first call: what it is to read is set before Open.
package nccl
