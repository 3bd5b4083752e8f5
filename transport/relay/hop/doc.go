// Package hop is one hop of a circuit over RDMA: the protocol between the two ends of a cable, each of which is the
// sender, a relay or the receiver.
//
//	writer                                   reader
//	frame: header, payload  ──────────────►  ring, or posted receives
//	[Window] of frames      ◄── credit ────  {freed, delivered}
//
// The same queue pairs carry a smaller flow in the other direction: grants.
//
// # Frames
//
// A frame is a header of 64 bytes and a payload. At a relay, except towards the receiver,
// the writer writes it into the relay's ring, at a place that the writer chooses: a multiple of 64 bytes, without wrapping
// around the end. The immediate contains the place. At an end of the circuit the frame is sent into a posted receive.
// If the last relay has more than [Small] bytes for the receiver, it sends only the header, and
// the immediate contains the place in the relay's ring from which the receiver reads the payload.
//
// # Credits
//
// A credit is a message without payload. Its immediate contains how many frames of the other
// direction have been freed, and how many have been delivered at the circuit's end. Only one credit
// is in flight at a time. Frames are freed in order, so a count is enough: the
// writer knows their lengths. Because the number of frames is limited, so is the number of credits that can
// arrive unrequested, and all receives for both are posted in advance.
//
// # Trust
//
// Everything that arrives is checked before it is used, and headers are checked only after they were copied,
// because the peer may write the ring at any time.
package hop
