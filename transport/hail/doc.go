// Package hail finds out who is at the other end of each cable.
//
// A [Hailer] asks on the interface of each port by multicast that stays on the link, over IPv6 and, where there is an IPv4
// address, over that: one small datagram, again and again for a while. Every process at the other end answers by unicast,
// and is a [Neighbour] then. Nothing is sent that nobody asked for.
//
//	door    where a port's interface is listened at for questions; open as long as the port is there
//	mouth   the socket that asks on an interface and hears the answers; open while an asking goes on
//
// # Strangers
//
// A datagram counts if it carries a MAC under the hail secret, has come in by a port's interface with a hop limit of 255,
// so that no router has passed it on, and is from another node; a question, if it was sent to the group; an answer, if it
// repeats what was asked there just now. All others are counted by their reason, and logged once for each interface and
// reason. A question costs no more than its answer and a count until the second is over.
//
// In a second an interface gives at most 20 answers to one socket, 500 to one address and 1,000 in all, so that a flood
// leaves others theirs. A flood from many sockets of a node can still crowd the other processes of that node out, and one
// from many addresses everybody on that interface.
//
// More than 16 nodes on one interface are a switch, and no neighbours.
//
// # Threads
//
// No method blocks, except Close, which waits for calls of Config's functions. Those are called without locks held.
package hail
