package handshake

import (
	"encoding/hex"

	"ncclmesh/random"
)

// ProcessID names one initialised plugin: 16 random bytes made when it starts.
type ProcessID [16]byte

// NodeID names one host: processes with the same NodeID share a kernel and a network namespace.
type NodeID [16]byte

// SessionID names one control session. Both ends derive it from the exchange that created the session.
type SessionID [16]byte

// Secret is the key of one listen. It travels in the handle, never on the network between two plugins.
type Secret [16]byte

// NewProcessID returns a random process id.
func NewProcessID(r random.Source) (id ProcessID) {
	r.Fill(id[:], "process id")
	return id
}

// NewSecret returns a random secret.
func NewSecret(r random.Source) (s Secret) {
	r.Fill(s[:], "secret of a listen")
	return s
}

func (id ProcessID) String() string { return hex.EncodeToString(id[:]) }
func (id NodeID) String() string    { return hex.EncodeToString(id[:]) }
func (id SessionID) String() string { return hex.EncodeToString(id[:]) }

// String hides the secret, so that it cannot reach a log by accident.
func (Secret) String() string { return "(secret)" }

// GoString hides the secret from %#v.
func (Secret) GoString() string { return "handshake.Secret{...}" }
