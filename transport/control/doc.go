// Package control is the control plane of a process: one TCP listener, and one authenticated session to each process
// that it exchanges connections with.
//
//	Endpoint  the listener and everything below it; one in a process
//	Listen    an invitation for connections, with the secret that its handle carries
//	Session   an ordered, lossless, authenticated message channel between two processes, whoever dialled; it survives
//	          the TCP connections it runs over
//	link      the TCP connection that a session uses at present
//
// # Sessions
//
// Messages are numbered and kept until the peer has handled them. When a link breaks, the side that dialled the session dials
// again at once, over all addresses of the peer; the other side waits a little for that, then dials the peer's own
// listener. Each link has its own keys. A newer link replaces the older one once its MAC is verified. When both
// sides resume at once, the attempt of the side that dialled the session wins. The listener also
// resumes the session of a dialler that it has welcomed and whose first frame was lost with the link: see offer.
//
// The peer is dead when an address that was known to be its own refuses, or belongs to another process, and no other
// address answers. When addresses only stay silent, the session tries again until Config.LaneWait.
//
// # Neighbours
//
// A process at the other end of a cable may be dialled without a handle (DialNeighbour), under a secret that all nodes have
// or, where no key is set, that everybody knows: then what it proves is that it is at the other end of that cable. The
// dialler's socket is bound to the interface, the listener binds its own to the one that the connection has come by, and
// takes nothing from behind a router. Such a session lives and dies with its interface and one address at either end. It
// is never given to one who dials a handle, nor is it lost for another session; there is one for each process and
// interface on the side that dials.
//
// What one cable's neighbours may use has a limit, for all their sessions together, so that those of other cables keep
// theirs: 64 sessions that they have dialled, counted from the moment that a Hello is found to be good, and 1,000 frames a
// second, after 8,192 at once. A session over its limit is not read until it may be again: its peer has to wait, and loses
// nothing. Sessions that a handle has made have no such limit.
//
// # Strangers
//
// The listener is open to everyone, so every byte is hostile until a MAC has been verified. A connection that
// is not yet authenticated costs one goroutine and a few kilobytes for at most 10 s; there are at most 256 of them, and
// 64 from one address. One too many costs one of those that have not said a whole Hello its place, whichever chance
// picks (package lobby). Those that are refused are closed, counted, and logged once for each address and reason.
//
// # Threads
//
// No method blocks on the network except Dial and Close. Config's functions are called without locks held; they may call
// any method except Endpoint.Close, which waits for them.
package control
