// Package control is the control plane of a process: one TCP listener, and one authenticated session with each process
// that it has connections with.
//
//	Endpoint  the listener and all sessions; one in a process
//	Listen    permission for peers to connect, with the secret that its handle contains
//	Session   an ordered, lossless, authenticated message channel between two processes; it survives
//	          the TCP connections it runs over
//	link      the TCP connection that a session uses at present
//
// # Sessions
//
// Messages are numbered and kept until the peer has handled them. When a link breaks, the side that dialled the session dials
// again at once, over all addresses of the peer; the other side waits briefly for that, then dials the peer's own
// listener. Each link has its own keys. A newer link replaces the older one once its MAC is verified. If both
// sides resume at once, the attempt of the side that dialled the session wins. The listener also
// resumes a session whose Welcome it has sent and whose first frame was lost with the link: see offer.
//
// The peer is dead if an address that was known to be its own refuses, or belongs to another process, and no other
// address answers. If addresses only stay silent, the session tries again until Config.LaneWait.
//
// # Neighbours
//
// A process at the other end of a cable may be dialled without a handle (DialNeighbour), under a secret that all nodes
// share or, if no key is set, that is public. Without a key the session proves only that the peer is at the other end of that
// cable. The dialler binds its socket to the interface. The listener binds the accepted socket to the interface that the
// connection arrived on, and accepts nothing that passed a router. Such a session depends on its interface and on one address
// at either end. It is never used for a dialled handle, and never replaces another session. The dialling side has one for
// each process and interface.
//
// All neighbours of one cable together have limits, so that they cannot use up the resources for other cables: 64 sessions
// that they have dialled, counted from the moment that a Hello is verified, and 1,000 frames a
// second after a burst of 8,192. This process does not read from a session over its limit, so that the peer has to wait and
// loses nothing. Sessions that were dialled with a handle have no such limit.
//
// # Unauthenticated connections
//
// The listener accepts connections from any address, so every byte is untrusted until a MAC has been verified. A connection
// that is not yet authenticated costs one goroutine and a few kilobytes for at most 10 s; there are at most 256 of them, and
// 64 from one address. Above a limit, a random one of those that have not sent a whole Hello is evicted (package accept).
// Refused connections are closed, counted, and logged once for each address and reason.
//
// # Threads
//
// No method blocks on the network except Dial and Close. Config's functions are called without locks held; they may call
// any method except Endpoint.Close, which waits for them.
package control
