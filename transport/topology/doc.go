// Package topology describes a node's ports, and which local and remote ports may reach each other.
//
// It finds the RDMA ports and network interfaces of a node (Discover), selects among them as NCCL's settings do
// (ParseHCA, ParseInterfaces), ranks the GIDs of a port (RankGIDs), pairs local ports with a peer's (Candidates), and
// makes the descriptions for the peer and for NCCL (Describe, Aggregate, BootstrapAddrs).
//
// Only Discover and GPUs read the machine, and Discover only through a Source: a sysfs root and a snapshot of the network links.
// All other functions depend only on their arguments, may be called concurrently, and return results in a deterministic order.
//
// Two addresses in one subnet make a Candidate, and no more than that: every port of a node may have a 169.254/16 address, and two
// machines may use the same private subnet. Only packets that arrive validate a path; the caller has to do that.
package topology
