// Package fabric gives tests, demonstrations and benchmarks nodes and cables
// without hardware.
//
// A [Mesh] describes nodes and the cables between them. The launcher of
// tests/fakeverbs makes it: each node is a network namespace, each cable a veth
// pair, with an RDMA device of the fake libibverbs at an end that names one.
//
//	[Build]   makes the launcher, and what else is under test
//	[Up]      brings a mesh up and holds it, to run commands on its nodes and to break things
//	[Again]   runs the calling test program again, on a node
//
// Everything belongs to processes that end with their caller, however it ends.
package fabric
