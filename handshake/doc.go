// Package handshake defines the bytes two processes exchange to set connections up, and the authenticated exchange itself.
//
// It knows nothing of sockets or verbs: everything here turns values into bytes and back. All integers are big endian.
//
//	Handle     128 bytes that NCCL carries from the listener to the connector
//	Exchange   Challenge, Hello, Welcome (or Reject): what is said on a TCP connection before it belongs to a session
//	LaneHello  and LaneWelcome: what is said first on the TCP connection of a lane
//	Frame      what is said afterwards: numbered, acknowledged, authenticated messages
//	NeighbourQuery       and NeighbourReply: the datagrams of neighbour discovery
//	Message    the bodies of frames: Open, Accept, Connected, Validated, Ports, Refuse, LaneDown, Bye
//
// # Rules
//
// Every length on the wire has a limit, checked before anything is allocated for it. A decoder accepts exactly what the
// encoder writes (no trailing bytes, no reserved bits, no second spelling), so that decode followed by encode gives the
// same bytes. Decoders never panic and never keep the slice they were given.
//
// # Keys
//
// The handle's secret never crosses the wire. For each TCP connection a key is extracted from the secret (or, to resume
// a session, from that session's own resume key) and both sides' nonces; Hello and Welcome carry an HMAC-SHA-256 over
// everything said so far. Frames are authenticated under one key per direction, derived from the whole exchange, over
// their position in the stream: a frame that is repeated, dropped, moved or taken from another connection is refused.
package handshake
