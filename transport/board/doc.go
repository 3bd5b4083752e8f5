// Package board lays out the board of a connection: what Go has decided, in memory
// that C reads without a call of Go. It holds answers, no rules of the protocol.
//
// Go writes which grant is next and where the ring of grants lies, how often the
// connection has been polled, and for each request whether it is done and what its
// sizes are. C writes which answers it has taken, and what it has asked before. Each
// word has one writer; who reads a word of the other side acquires it, who writes one
// releases it.
//
// The memory stays mapped for as long as the process lives, so that C may look at the
// board of a connection that is just closing. A forked child does not have it.
package board
