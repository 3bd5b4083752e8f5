// Package draw gives a simulation its randomness: streams of draws that a seed and a name determine.
//
// The n-th draw of a stream is a hash of the seed, the stream's name and n. It does not depend on what other streams have
// drawn, nor on the order in which goroutines run. A scenario that loses a message, a fault or a node therefore leaves
// the draws of all others as they were, which is what makes a failure shrink.
//
// Each thing that can act by itself has a stream of its own: a direction of a cable, a queue pair, a thread.
package draw
