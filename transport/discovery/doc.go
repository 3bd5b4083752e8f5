// Package discovery discovers the processes at the other ends of this node's cables (neighbour discovery, as NDP or LLDP do it).
//
// A [Discovery] multicasts small queries on each port's interface, with link-local scope: over IPv6 and, if the interface
// has an IPv4 address, over IPv4 too. It repeats the query for a while. Every process that receives a query answers by
// unicast, and so becomes a [Neighbour] of the process that sent the query. No process announces itself without a query.
//
//	listener        receives queries on a port's interface; open as long as the interface exists
//	query socket    sends queries on an interface and receives the replies; open during a round of queries
//
// # Untrusted datagrams
//
// A datagram is accepted if it carries a MAC under the discovery secret, arrived on the port's interface with a hop limit
// of 255 (so no router forwarded it), and comes from another node. A query must also be addressed to the multicast group. A
// reply must repeat the nonce of a query that this process just sent. All other datagrams are counted by reason, and logged
// once for each interface and reason. A query makes this process send one reply and keep one counter until the second ends.
//
// Each second an interface sends at most 20 replies to one socket, 500 to one address and 1,000 in total, so that a flood
// from one socket or address does not use up the replies of the others. A flood from many sockets of one node can still
// deprive the other processes of that node, and a flood from many addresses can deprive all nodes on that interface.
//
// If more than 16 nodes answer on one interface, the interface leads to a switch, and none of them is a neighbour.
//
// # Threads
//
// Two methods block: Ends, which waits for replies, and Close, which waits until calls of Config's functions have returned.
// The Discovery calls those functions without holding a lock.
package discovery
