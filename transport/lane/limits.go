package lane

import "ncclmesh/handshake"

// The limits of a connection. They are part of the protocol: both halves rely
// on them.
const (
	Window     = 256 // receives that may be outstanding, and slots of the grant ring
	MaxSubs    = 8   // sub-receives of one receive
	MaxParts   = 32  // parts of one message, and lanes of one connection
	MaxDomains = 8   // domains of a connection on either side

	// Resends is how many parts that were sent before may be under way: every lane of
	// a receiver has room for so many beside those of its grants.
	Resends = 256

	PartAlign = 128     // parts are cut on multiples of this: NCCL's LL128 needs it
	MaxChunk  = 1 << 30 // bytes of one write
	MaxWrites = 1 << 8  // plain writes of one part that an immediate can count, and one
)

// What an immediate, a grant and the set-up messages can say.
const (
	_ = uint(1<<8 - Window)
	_ = uint(1<<3 - MaxSubs)
	_ = uint(1<<5 - MaxParts)
	_ = uint(handshake.MaxLanes-MaxParts) + uint(MaxParts-handshake.MaxLanes)
	_ = uint(handshake.MaxReceives-Window) + uint(Window-handshake.MaxReceives)
	_ = uint(handshake.MaxSubs-MaxSubs) + uint(MaxSubs-handshake.MaxSubs)
	_ = uint(handshake.MaxDomains-MaxDomains) + uint(MaxDomains-handshake.MaxDomains)
)
