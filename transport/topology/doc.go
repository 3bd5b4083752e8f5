// Package topology says what a node's ports are and what may connect to what.
//
// It finds the RDMA ports and network interfaces of a node (Discover), selects among them the way NCCL's settings do
// (ParseHCA, ParseInterfaces), ranks the GIDs of a port (RankGIDs), pairs local ports with a peer's (Candidates), and
// says what the peer and NCCL are told (Describe, Aggregate, BootstrapAddrs).
//
// Only Discover looks at the machine, and only through a Source: a sysfs root and a snapshot of the network links.
// Everything else is a pure function of its arguments, safe for concurrent use, with results in a deterministic order.
//
// Two addresses in one subnet make a Candidate, never a path: every port of a node may have a 169.254/16 address, two
// machines may use the same private subnet. Only packets seen to pass prove a path, and that is the caller's work.
package topology
