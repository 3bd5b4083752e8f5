// Package world has the machines of a simulation, on its bus: hosts of tests/sim/internet with RDMA adapters of
// tests/sim/adapter, a sysfs and netlink, the cables between them, and processes, each of which is a [transport.Machine]: all that a transport asks of the
// machine that it runs on.
//
//	World ── Machine: a host, its RDMA adapters, its sysfs
//	   │        └── Process: sockets, verbs, timers, random numbers, netlink
//	   └── Cable: between the ports of two machines
package world
