// Package mesh runs whole jobs in virtual time: machines with cables between them, and on each a process that uses the
// plugin as NCCL does. Between ncclnet.Net and the driver of verbs and the sockets the code is the code that ships. See
// docs/internals/simulation.md.
//
//	World ── Machine: of tests/sim/world
//	            └── Process: ncclnet.Net, its settings, its log
//	                   └── Rank: the thread of NCCL that sets connections up and moves messages
//
// A job is right when every message arrives whole, once, and in its buffer, no call fails but those that the test expects to
// fail, no call of the data path lets time pass, all ranks end in a bounded time after the last fault, and nothing stays open.
package mesh
