// Package internet simulates hosts, the cables between them, and their sockets, on the bus of a simulation: a
// sock.Network for each process, whose streams and datagrams take virtual time, get lost and break as real ones do.
//
//	Internet ── Host ── Interface ── Link ── Interface ── Host
//	              │                                         │
//	           Process (sock.Network)                    Process: listeners, streams, datagram sockets
//
// A stream is what TCP makes of it. What is written waits in a buffer of the sender, goes out in segments, is
// acknowledged, and sent again when it is not, with growing pauses; a window keeps a fast sender from a slow reader. The
// ends of a stream know of one another by segments alone: a host that loses its power leaves the other end half open, and
// answers with a reset once it is back. Datagrams are sent once.
//
// A segment or a datagram is routed when it is sent: to an interface that the socket is bound to or whose subnet it goes
// to, there to whichever interface of the link answers for the address, or back into the host. No host forwards.
//
// The model is nasty on purpose. Each stream has buffers of a size of its own. Segments are cut at any byte, and a
// [sock.Stream] may take less than its buffer has room for. Ports come from draws. What was sent over a link that is cut
// before it arrives is lost.
//
// What a program does at an instant takes effect at the next event of the socket's own source, so that the order in which
// goroutines of one instant act does not matter. A socket is named after its process, where it leads and how many led
// there before it; two that one process dials at one instant to one place from one place are told apart by the order of
// the calls.
//
// Not in the model: congestion control, Nagle, delayed acknowledgements, tail loss probes, urgent data, fragments, neighbours that
// become stale, duplicate address detection, routes through gateways, broadcast, firewalls.
package internet
