// Package relay makes circuits: a lane's way through other nodes, hop by hop.
//
//	asker ──Carry──► relay ──Carry──► relay ──Arrive──► receiver      Carried says where to dial, or write
//	      ◄─Carried─       ◄─Carried─       ◄──Carried─
//
// A process asks for circuits ([Relay.Carry]), takes those that end at it
// ([Relay.Expect]), and carries them for others, whichever is asked of it over the
// sessions with its neighbours. Each hop of a circuit belongs to one session, in which
// its asker has numbered it; a relay joins two. What the hops are made of is a [Maker]'s:
// sockets, joined by the kernel, are here; queue pairs are in relay/engine.
//
// # Ends
//
// A circuit ends when a Drop comes from either side, when the session of one of its hops
// ends, or when what joins the hops says so. Each process on the way tells the other side,
// once, and gives back what it has. Nothing is repeated: who still wants to go that way
// asks for another circuit.
//
// # Silence
//
// A relay that is stopped ends nothing: its kernel and its adapter answer. So each process
// asks the relays next after it for signs of life, while circuits stand, and passes word of
// one that gives none to the asker, whose lane is left where it has another way.
//
// # Strangers
//
// Who has a session with this process may ask. What that costs is bounded: so many
// circuits for a session, for a cable, and in all. Messages about circuits that there are not are
// counted and ignored, as both ends may drop one at a time.
//
// # Threads
//
// Message and Gone never block: what takes time runs in the background. The mutex is a
// leaf. Callbacks are called without it.
package relay
