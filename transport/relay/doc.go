// Package relay makes circuits: paths of a lane through other nodes, hop by hop.
//
//	sender ──CircuitOpen──► relay ──CircuitOpen──► relay ──CircuitDeliver─► receiver
//	       ◄─CircuitOpened─       ◄─CircuitOpened─       ◄─CircuitOpened───
//
// CircuitOpened contains the address to dial, or the ring to write.
//
// A process requests circuits ([Relay.OpenCircuit]), accepts those that end at it
// ([Relay.Expect]), and relays them for other nodes, as requested over the
// sessions with its neighbours. Each hop of a circuit belongs to one session, in which
// the requesting side has chosen its number. A relay connects two hops. A [Maker] makes them:
// that of sockets, spliced by the kernel, is here; that of queue pairs is in relay/engine.
//
// # Ends
//
// A circuit ends when a CircuitClose arrives from either side, when the session of one of its hops
// ends, or when a hop fails. Each process on the path sends one CircuitClose to its other side
// and releases its resources. Nothing is retried: a lane that still needs the path
// requests another circuit.
//
// # Stalled relays
//
// A relay whose process is stopped ends nothing, because its kernel and its adapter still answer. Therefore each process
// checks the next relays on its circuits for signs of life, and reports
// one that gives none towards the sender, which drains the lane if it has another path.
//
// # Limits
//
// Any process that has a session with this one may request circuits. Their number is limited for
// each session, for each cable, and in total. Messages about unknown circuits are
// counted and ignored, because both ends may drop a circuit at the same time.
//
// # Threads
//
// Message and SessionEnded never block: long work runs in the background. The mutex is a
// leaf lock. Callbacks are called without it, except Config.Changed.
package relay
