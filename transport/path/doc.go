// Package path finds the ways to a peer process and shares them among connections.
//
// Candidates are pairs of ports that might reach each other (package topology). A
// trial, a connection without messages, tries them all at once; a pair over which packets
// were seen to pass in both directions is a path. What was found is kept until a port
// changes, here or there, or a lane over it fails. A connection gets a share of the
// paths: as many lanes as use both nodes' ports up, with their weights.
//
// RDMA is used where it works, TCP between two nodes where it does not, and people are
// told why.
package path
