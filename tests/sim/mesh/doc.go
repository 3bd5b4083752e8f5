// Package mesh runs whole jobs in virtual time: machines with cables between them, and on each a process that uses the
// plugin as NCCL does. From ncclnet.Net down to the sockets the code is the one that ships.
//
//	World ── Machine: a host of tests/sim/internet, and what its kernel tells of interfaces
//	            └── Process: ncclnet.Net, its settings, its log
//	                   └── Rank: the thread of NCCL that sets connections up and moves messages
//
// A job is right when every message arrives whole, once, and in its buffer, no call fails, and all of it ends in a bounded
// time after the last fault.
package mesh
