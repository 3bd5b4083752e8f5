// Package path finds the paths to a peer process and chooses lanes for its connections.
//
// Candidates are pairs of ports that might reach each other (package topology). A
// probe is a connection without messages that tests many candidates at once. A path is a candidate over which packets
// have passed in both directions. The paths to a peer are kept until a port of either node
// changes or a lane fails. A connection gets as many lanes over the
// paths as are needed to use the full speed of both nodes' ports; each lane has a weight.
//
// RDMA is used where it works. Where it does not, TCP is used, and a warning for the user gives the reason.
package path
