package tcp

// Access to a socket for the tests of whole connections.

import (
	"time"

	"ncclmesh/transport/lane"
	"ncclmesh/transport/sock"
)

const (
	FrameHeader = frameHeader
	GrantBuffer = grantBuffer
	KindGrant   = kindGrant
	PieceSize   = pieceSize
	PollBytes   = pollBytes
	ReadAhead   = readAhead
)

var HexBytes = hexBytes

// PartFrame returns the header of a part, AckFrame that of an acknowledgement.
func PartFrame(m lane.Imm, length uint32, offset uint64) []byte {
	var b [frameHeader]byte
	dataFrame{m.Encode(), length, offset}.encode(&b)
	return b[:]
}

func AckFrame(count uint64) []byte {
	var b [frameHeader]byte
	reverseFrame{kind: kindAck, number: count}.encode(&b)
	return b[:]
}

// Socket is a lane's socket. Changing it requires the connection's lock.
type Socket = socket

// SocketOf returns the socket that carries a lane.
func SocketOf(l *lane.Lane) *Socket { return l.Carrier.(*socket) }

// Stream returns the stream that the socket uses.
func (k *socket) Stream() *sock.Stream { return k.stream }

// Checks reports whether outgoing and incoming bytes are authenticated.
func (k *socket) Checks() (out, in bool) { return k.sealer.on(), k.opener.on() }

// CodeSize returns the length of a code.
func (k *socket) CodeSize() int { return k.sealer.size() }

// Input returns how many bytes of the reverse stream are read at once.
func (k *socket) Input() int { return len(k.mem.in) }

// Arrived returns how many bytes of the part that is arriving have arrived.
func (k *socket) Arrived() int { return int(k.in.length) - k.rest - k.left }

// Replace closes the stream and sets another.
func (k *socket) Replace(s *sock.Stream) error {
	err := k.stream.Close()
	k.stream = s
	return err
}

// Hurry sets how long a peer may be silent.
func (k *socket) Hurry(d time.Duration) { k.port.opts.Silence = d }
