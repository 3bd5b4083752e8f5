// Package fakeverbs holds a libibverbs that needs no RDMA hardware, in C, and
// the Go tests that build it and prove it: its own cases with and without
// sanitizers, programs nobody here wrote, the launcher, the link model.
// README.md says how to use it.
package fakeverbs
