// Package engine forwards circuits over RDMA for other nodes: it moves frames between the two
// hops at a relay.
//
//	previous hop               ring of the relay              next hop
//	frame written ──────────►  header copied, checked  ─────► written into the next ring
//	                                                   ─────► to the receiver: sent whole, or only the header
//	                           payload ◄───────────────────── which the receiver uses to read the payload
//	credit ◄─────────────────  freed, delivered        ◄───── completions, credits
//
// Grants flow back over the same hops, through a smaller ring. The processor handles frames, a
// few microseconds each, and never touches payloads.
//
// One thread serves all circuits of a process. It waits on the completion channels of its
// devices, and polls for a millisecond after each event. A dropped circuit is torn
// down by a goroutine of its own, which stops the queue pairs, waits until the thread has
// polled what they flush, destroys them, and frees the memory.
//
// Each circuit has its own protection domains, memory and keys. The previous process can only write the ring,
// and the receiver can only read it; nothing else of this
// process is reachable.
package engine
