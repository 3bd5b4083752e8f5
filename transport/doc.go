// Package transport is a process's end of the mesh: the ports it may use, the control
// plane that sets up connections, and the routing of messages to them.
//
// A connection is one-way, as NCCL requires: a sender in one process, a receiver in the other,
// over one or more lanes, each over one path between a local and a remote port.
//
// # Packages
//
//	transport           Listen, Dial, Close; the ports; which connection a message belongs to
//	transport/copier    copies within the process by its adapters, for GPU memory
//	transport/onesided  windows, puts, signals and gets between processes
//	transport/conn      one end of a connection: messages, and its lanes: set-up, validation, failure, repair and end
//	transport/conn/...  failover: what follows the failure of a lane, as a protocol without locks or time
//	transport/path      the paths to a peer, and the share of each in a connection
//	transport/overlay   all that the other packages use of the next four: routes and circuits through other nodes
//	transport/discovery neighbour discovery: the processes at the other ends of this node's cables
//	transport/routing   the map of the mesh, and routes to nodes that share no cable with this one
//	transport/relay     circuits: lanes through other nodes, and those relayed for other nodes
//	transport/relay/... hop and engine: endpoints and forwarder of circuits over RDMA
//	transport/lane      a lane: state, memory, events; the interface of a carrier
//	transport/lane/...  verbs, tcp and circuit: the carriers
//	transport/board     the state of a connection that C may read without calling Go
//	transport/control   one authenticated session for each pair of processes
//	transport/dataport  the sockets of lanes: expected, dialled and authenticated
//	transport/accept    accepts the sockets of control and dataport, and limits those that have not authenticated
//	transport/sock      all sockets: the kernel's, or those of a simulated network
//	transport/topology  ports, addresses and cables of this node
//	transport/fault     the kinds of errors that all packages share
//	transport/stats     counters that other processes may read at any time
//
// and small ones: threads (thread pool for verbs that block), forkfd (descriptors that a forked child closes), limit (what to
// report when the process runs out of a resource), clock (timers).
//
// # Where to look
//
//	where a lane's weight is decided          path, share.go
//	where a lane's state changes              lane, state.go
//	why a lane was taken out of service       Lane.Why in lane, state.go; drain.go in conn sets it and logs it
//	what a duplicate part does                conn, incoming.go
//	what deregistering used memory does       Conn.DeregMR in conn, region.go
//	which lock guards a field                 the mutex is above its fields; order and exceptions are below
//	what follows a completion with an error   lane/verbs, completion.go; then events.go and drain.go in conn
//	what is resent after a lane fails         conn/failover; then failover.go in conn; of puts and signals putlost.go
//	where lost lanes are replaced             repair.go; the lanes join by conn's join.go
//	which goroutine may call a function       below; lane and conn document their own
//	where data per lane is traced             conn, trace.go; then profiler.go in ncclnet
//	which route is preferred                  routing, route.go
//	in which order paths are tried            path, find.go; then route.go
//	what another node may request             relay, open.go; control, neighbour.go
//	what relaying needs of the process        overlay, overlay.go
//	where all paths are tried                 survey.go here and in path
//	where to add a carrier                    beside lane/verbs; lane's package comment lists the requirements
//
// # Goroutines and locks
//
//	goroutine                          may lock, one at a time
//	a device's events                  a port's queueMu, a session's mutex
//	a session's messages               Transport.mu, Finder.mu, Listener.mu, a session's mutex
//	NCCL's threads, set-ups, closing,
//	a connection's event goroutine     a connection's mutex, then any of those below
//
// A connection's mutex may be held for seconds, while its lanes drain and until the events
// of its queue pairs are acknowledged. Therefore the first two kinds of goroutine never lock
// one. They end a connection, or report the failure of a lane, by methods of [conn.Conn] that need no mutex. The
// order of locks is: a connection's growing, held while a port joins a connection (a turn, as regMu is, because in virtual
// time a goroutine may have to wait for it); the connection's mutex; the mutex of a relayed circuit in package
// relay/engine; a verbs port's regMu, held over registrations; the mutexes
// of package ibv, child before parent. All others are leaf locks: while a goroutine holds one, it does not wait and takes
// no other lock.
//
// Listen, Dial, Accept, Poll, and all calls of conn's Sender and Receiver, never block: nil, or
// false, means "not yet, call again". NCCL's threads and set-ups run in the caller;
// each goroutine of this package serves one set-up, probe or close and ends with it.
// Memory that a device or NCCL may keep lies outside the Go heap.
//
// # Panics
//
// The process belongs to the application. A panic in a call of the owner unlocks the mutex and passes through to
// the caller that recovers it, and that caller calls Fail on the connection. A panic in a
// goroutine of this package becomes, by package guard, the error of the set-up, the
// connection or the session that it serves. Close releases everything even after a panic.
package transport
