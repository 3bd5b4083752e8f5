package lane

import "ncclmesh/handshake"

// The limits of a connection. They are part of the protocol, because both halves rely on them.
const (
	Window     = 256 // receives that may be outstanding, and slots of the grant ring
	MaxSubs    = 8   // sub-receives of one receive
	MaxParts   = 32  // parts of one message, and lanes of one connection
	MaxDomains = 8   // domains of a connection on either side

	// Resends is the number of parts that may be in flight a second time. Every lane of a receiver has receives
	// for that many parts, in addition to those for its grants.
	Resends = 256

	PartAlign = 128     // messages are split at multiples of this, because NCCL's LL128 protocol requires it
	MaxChunk  = 1 << 30 // bytes of one write
	MaxWrites = 1 << 8  // 1 + the plain writes of one part that an immediate can count
)

// The limits fit the fields of an immediate, of a grant and of the handshake messages.
const (
	_ = uint(1<<8 - Window)
	_ = uint(1<<3 - MaxSubs)
	_ = uint(1<<5 - MaxParts)
	_ = uint(handshake.MaxLanes-MaxParts) + uint(MaxParts-handshake.MaxLanes)
	_ = uint(handshake.MaxReceives-Window) + uint(Window-handshake.MaxReceives)
	_ = uint(handshake.MaxSubs-MaxSubs) + uint(MaxSubs-handshake.MaxSubs)
	_ = uint(handshake.MaxDomains-MaxDomains) + uint(MaxDomains-handshake.MaxDomains)
)
