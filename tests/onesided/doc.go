// Package onesided tests libncclmesh as programs use it: its header in C and C++, what the library exports, programs in C and Python on nodes of
// tests/fakeverbs, and the worked example of docs/onesided.md. The protocol is tested in package comm, in virtual time.
//
//	src/ring.c       MSCCL++'s ring example, with a processor in the place of the GPU: triggers pushed to FIFOs, loops on epochs
//	src/alltoall.c   its all-to-all example, with a thread in the place of each GPU block
//	src/gpu.c        data and signal words in GPU memory, of tests/fakecuda
//	src/end.c        a rank that dies while another waits for it
//	src/load.c       what works without a network: errors, forked children, FIFO words
package onesided
