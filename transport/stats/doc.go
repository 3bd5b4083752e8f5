// Package stats is what a process shows of itself while it runs: counters and names that other processes read.
//
// They lie on a [Page], plain words of 64 bits in a sealed memfd. Whoever counts writes there and nowhere else; a process
// that is given the descriptor can neither write nor resize it, and needs nothing of the one that counts: no thread, no
// wake-up, no lock. Counters have one writer each and are written as they are. Names and the lists that they are in change
// under a sequence, odd while they do: [Read] copies the page until it meets an even one that stayed, and gives up on a
// process that has died in the middle.
//
// # Layout, version 1
//
// A header, whose table says where each list lies, how long a slot of it is and how many were ever in use; then the lists:
// ports, ways, connections, lanes, words. A way is what lanes lead over: a port here, one at a peer, and the nodes between.
// It counts what lanes have carried that are no more, so that a way's traffic is the sum of its own and of its lanes'.
// Everything is in the machine's byte order, which is that of all machines this is built for: little-endian. Texts are
// UTF-8, padded with zeros. What does not fit is counted, in the header's Mores.
//
// The page belongs to a transport. Its memory goes when that closes; the addresses stay reserved for the next page of the
// process, so that a counter that is added to late does no harm. A forked child does not have it.
package stats
