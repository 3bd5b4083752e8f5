// Package transport is a process's end of the mesh: the ports it may use, the control
// plane that sets connections up, and the routing of its messages.
//
// A connection is one-way, as NCCL wants it: a send half here, a receive half there,
// over one or more lanes, each over one path between a local and a remote port.
//
// # Rooms
//
//	transport           Listen, Dial, Close; which ports there are; whose a message is
//	transport/conn      one end of a connection: messages, and its lanes: set-up, proof, how they fail, come back and end
//	transport/path      which ways lead to a peer, and how much of them a connection gets
//	transport/mesh      the map of the mesh, and routes to nodes that no cable joins to this one
//	transport/lane      a lane: state, memory, what it tells; the shape of a carrier
//	transport/lane/...  verbs, tcp and circuit, which carry lanes
//	transport/relay     circuits: lanes that other nodes carry, and those carried for others
//	transport/relay/... hop and engine: what circuits over RDMA are made of, and who relays them
//	transport/board     what C may answer of a connection without a call of Go
//	transport/control   one authenticated session for each pair of processes
//	transport/hail      who is at the other end of each cable
//	transport/dataport  where sockets of lanes come in, and are proved
//	transport/sock      every socket: the kernel's, or those of a simulated network
//	transport/topology  ports, addresses and cables of this node
//	transport/fault     the kinds of errors that all rooms share
//	transport/stats     counters that may be read while they count
//
// and the small ones: crew (threads for verbs that block), forkfd (descriptors that a
// forked child closes), limit (what a process runs out of), lobby (strangers at a door), clock (timers).
//
// # Where to look
//
//	where is a lane's weight decided        path, share.go
//	who may change a lane's state           lane, state.go
//	what happens when a completion is bad   lane/verbs, completion.go; then events.go and drain.go in conn
//	what was lost with a lane               conn, failover.go
//	who looks for a way that lacks          mend.go; the lanes join by conn's join.go
//	which goroutine may call this           below; lane and conn say it of themselves
//	who tells which lane carried what       conn, trace.go; then profiler.go in ncclnet
//	which route is preferred                mesh, route.go
//	what is tried before what               path, find.go; then route.go
//	what another node may ask of this one   neighbours.go; relay, carry.go
//	who tries every way there is            survey.go; that of path
//	where would another carrier go          beside lane/verbs; lane's comment says what it has to have
//
// # Goroutines and locks
//
//	goroutine                          may take, one at a time
//	a device's events                  a port's queueMu, a session's mutex
//	a session's messages               Transport.mu, Finder.mu, Listener.mu, a session's mutex
//	NCCL's threads, set-ups, closing,
//	a connection's heeding             a connection's mutex, then any of those below
//
// A connection's mutex may be held for seconds, while its lanes drain, and until the events
// of its queue pairs are acknowledged: so the former two never take one. They end a
// connection, or accuse a lane, by methods of [conn.Conn] that need none. The
// order is: a connection's growing, held while a port joins a connection (a turn, as is regMu: in virtual time one may
// wait for it); its mutex;
// a joint's of package relay/engine; a verbs port's regMu, held over registrations; the mutexes
// of package ibv, child before parent. All others are leaves: nobody waits, or takes
// another, while holding one.
//
// Listen, Dial, Accept, Poll, and all calls of conn's Sender and Receiver, never block: nil, or
// false, means "not yet, call again". NCCL's threads and set-ups run in the caller;
// goroutines of this package serve one set-up, trial or close each and end with it.
// Memory that a device or NCCL may keep lies outside the Go heap.
//
// # Panics
//
// The process is not ours. A panic in a call of the owner passes through, with the
// mutex released, to whoever recovers it, who calls Fail on the connection; one in a
// goroutine of this package becomes, by package guard, the error of the set-up, the
// connection or the session that it serves. Close gives back all the same.
package transport
