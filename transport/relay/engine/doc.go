// Package engine carries circuits over RDMA for others: what a relay does between two
// hops.
//
//	the hop before             ring of the relay              the hop behind
//	frame written ──────────►  header copied, checked  ─────► written on, into the next ring
//	                                                   ─────► to the receiver: sent, or the header
//	                           payload ◄───────────────────── that the receiver reads by
//	credit ◄─────────────────  freed, delivered        ◄───── completions, credits
//
// Grants come back the same way, through a smaller ring. The processor handles frames, a
// handful of microseconds each, and never bytes.
//
// One thread serves all circuits of a process. It waits on the completion channels of its
// devices, and turns for a millisecond after something has come. A circuit that ends comes
// down in a goroutine of its own, which stops its queue pairs, waits until the thread has
// polled what they flush, destroys them, and gives the memory back.
//
// Each circuit has protection domains, memory and keys of its own: of one hop only the
// ring can be written, of the last only the ring can be read, and nothing else of the
// process is reached.
package engine
