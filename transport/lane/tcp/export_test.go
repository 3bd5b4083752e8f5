package tcp

// What the tests of whole connections see and change of a socket.

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

// PartFrame is the header of a part, AckFrame that of an acknowledgement.
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

// Socket is a lane's socket. Who changes it holds the connection's lock.
type Socket = socket

// SocketOf is the socket that carries a lane.
func SocketOf(l *lane.Lane) *Socket { return l.Carrier.(*socket) }

// Stream is what the socket sends and receives over.
func (k *socket) Stream() *sock.Stream { return k.stream }

// Checks reports whether what goes out, and what comes in, is checked.
func (k *socket) Checks() (out, in bool) { return k.sealer.on(), k.opener.on() }

// CodeSize is the length of a code.
func (k *socket) CodeSize() int { return k.sealer.size() }

// Input is how many bytes of returns are read at once.
func (k *socket) Input() int { return len(k.mem.in) }

// Arrived is how many bytes there are of the part that is arriving.
func (k *socket) Arrived() int { return int(k.in.length) - k.rest - k.left }

// Replace closes the stream, and gives the socket another.
func (k *socket) Replace(s *sock.Stream) error {
	err := k.stream.Close()
	k.stream = s
	return err
}

// Hurry shortens how long a silent peer is waited for.
func (k *socket) Hurry(d time.Duration) { k.port.opts.Silence = d }
