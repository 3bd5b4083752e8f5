// Package fifo implements the queue by which a processor or a GPU requests transfers without calling the library.
//
// A FIFO belongs to one connection. Producers push triggers of 16 bytes; one consumer, a proxy, executes them in order. The
// layout is public, so that a kernel on a GPU can push too; ncclmesh.h has the same layout in C.
//
//	byte    0  head     number of triggers that producers have claimed; they add to it
//	byte   64  tail     number of triggers that the proxy has executed; only the proxy writes it
//	byte  128  failure  0, or the result code of the first trigger that failed; only the proxy writes it
//	byte  256  128 slots of 16 bytes; trigger n is in slot n mod 128
//
// All words have 64 bits, in the byte order of the machine.
//
// # A trigger
//
//	word 0   bits  0–39  size in bytes
//	         bits 40–55  bits 24–39 of the offset in the source
//	         bits 56–58  kind: Put 1, Signal 2, Flush 4, or a sum of them
//	         bits 59–62  0
//	         bit  63     lap: 1 if n/128 is even, else 0
//	word 1   bits  0–39  offset in the destination
//	         bits 40–63  bits 0–23 of the offset in the source
//
// Sizes and offsets have 40 bits: a buffer may have a tebibyte. A put of 0 bytes at offset 0 is a trigger as any other, because
// the lap bit, and not the value of a word, tells that a slot is full.
//
// # To push
//
//	n = fetch-and-add(head, 1)           relaxed
//	wait until n < tail + 128            load tail with acquire
//	store word 1 in slot n mod 128       relaxed
//	store word 0                         release
//
// A GPU uses the system's scope for all four. The proxy loads word 0 with acquire, and word 1 after it, so the two words need not be
// stored at once. The data that a put is to send must have been written before word 0. A producer that wants to know whether
// trigger n was executed waits until tail > n, which for a Flush means that the data has arrived. Then it looks at failure,
// because a failed connection executes nothing: the tail goes on, so that no producer waits for ever.
package fifo
