// Package stats publishes the statistics of a process: counters and names that other processes read while it runs.
//
// They are stored on a [Page], which consists of 64-bit words in a sealed memfd. The data path adds to the counters on the page
// directly. A process that receives the descriptor can neither write nor resize the page, and a read needs no thread, no
// wake-up and no lock of the process that counts. Each counter has one writer and changes with a single store. Names and the
// lists that contain them change under a sequence number (a seqlock), which is odd during a change: [Read] copies the page
// until the number was even and equal before and after the copy, and gives up if the process has died during a change.
//
// # Layout, version 1
//
// The page has a header, whose tables give the offset of each list, the size of its slots and the number of slots that were
// ever used; then the lists: ports, paths, connections, lanes, notices. A path is a local port, a port of a peer, and the relays
// between them. It counts the traffic of its former lanes, so that a path's traffic is the sum of its own counters and those of
// its present lanes. The byte order is little-endian, that of all supported machines. Texts are
// UTF-8, padded with zeros. The header counts the entries for which a list has no room.
//
// The page belongs to a transport. Its memory is unmapped when the transport closes; the addresses stay reserved for the next
// page of the process, so that a late addition to a counter does no harm. The page is not mapped in a forked child.
package stats
