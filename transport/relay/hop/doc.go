// Package hop is one hop of a circuit over RDMA: what both ends of a cable, each the
// sender, a relay or the receiver, have to agree on.
//
//	writer                                   reader
//	frame: header, payload  ──────────────►  ring, or posted receives
//	[Window] what may go    ◄── credit ────  {freed, delivered}
//
// The same goes on, smaller, in the other direction of the same queue pairs: what comes
// back are grants.
//
// # Frames
//
// A frame is a header of 64 bytes and a payload. A relay before the last, or the first,
// has it written into its ring, where the writer chooses: in units of 64 bytes, never
// across the end. The immediate is the place. An end has it sent into a posted receive;
// of one from the last relay with more than [Small] bytes only the header is sent, and
// the immediate says where in that relay's ring the rest is to be read.
//
// # Credits
//
// A credit is a message without a byte: its immediate says how many frames of the other
// direction have been freed, and how many have been delivered at the circuit's end. One
// at a time is under way. Frames are freed in their order, so a number is enough: the
// writer knows how long they were. As frames are limited, so are the credits that can
// come unasked, and every receive that either takes is posted before.
//
// # Trust
//
// Nothing that comes is used before it is checked, headers only once they are copied:
// the other side may write the ring at any time.
package hop
