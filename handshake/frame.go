package handshake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
)

// Frame is what crosses a link after the exchange.
//
//	0   length 4: of all that follows
//	4   type 1
//	5   number 8: of this message in its session and direction, from 1; in a bare acknowledgement, of the last one sent
//	13  ack 8: number of the last message received
//	21  body
//	    HMAC-SHA-256 32: over the frame's position in the link (8 bytes, not sent) and all bytes above
type Frame struct {
	Type   Type
	Number uint64
	Ack    uint64
	Body   []byte
}

const (
	frameHeader = 21
	frameLength = 4
	// MaxBody is the largest body of a message.
	MaxBody = 16 << 10

	minFrame = frameHeader - frameLength + macSize
	maxFrame = minFrame + MaxBody
)

// The largest message fits a frame.
const _ = uint(MaxBody - (4 + 4 + 4 + 1 + MaxLanes*(1+1+2+MaxReason)))

// ErrFrameMAC says that a frame was changed, repeated, left out or made by someone else.
var ErrFrameMAC = errors.New("frame with a wrong MAC")

// Sealer writes the frames of one direction of one link.
type Sealer struct {
	mac   hash.Hash
	index uint64
}

// NewSealer returns the Sealer of a new link.
func NewSealer(key Key) *Sealer { return &Sealer{mac: hmac.New(sha256.New, key[:])} }

// Append appends the next frame to b.
//
// Preconditions: the body has at most MaxBody bytes.
func (s *Sealer) Append(b []byte, f *Frame) []byte {
	start := len(b)
	b = append(binary.BigEndian.AppendUint32(b, uint32(minFrame+len(f.Body))), uint8(f.Type))
	b = binary.BigEndian.AppendUint64(b, f.Number)
	b = append(binary.BigEndian.AppendUint64(b, f.Ack), f.Body...)
	return frameMAC(s.mac, &s.index, b[start:], b)
}

// Opener reads the frames of one direction of one link.
type Opener struct {
	mac   hash.Hash
	index uint64
}

// NewOpener returns the Opener of a new link.
func NewOpener(key Key) *Opener { return &Opener{mac: hmac.New(sha256.New, key[:])} }

// Read reads and verifies the next frame. After an error the link is of no further use; io.EOF means that it ended
// between two frames.
func (o *Opener) Read(in io.Reader) (*Frame, error) {
	var head [frameLength]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < minFrame || n > maxFrame {
		return nil, fmt.Errorf("frame says %d bytes, %d to %d are allowed", n, minFrame, maxFrame)
	}
	b := make([]byte, frameLength+n)
	copy(b, head[:])
	if _, err := io.ReadFull(in, b[frameLength:]); err != nil {
		return nil, noEOF(err)
	}
	text, mac := b[:len(b)-macSize], b[len(b)-macSize:]
	if !hmac.Equal(mac, frameMAC(o.mac, &o.index, text, nil)) {
		return nil, ErrFrameMAC
	}
	body := text[frameLength:]
	return &Frame{Type: Type(body[0]), Number: binary.BigEndian.Uint64(body[1:]), Ack: binary.BigEndian.Uint64(body[9:]), Body: body[17:]}, nil
}

// frameMAC appends the MAC of the next frame to b.
func frameMAC(mac hash.Hash, index *uint64, text, b []byte) []byte {
	var position [8]byte
	binary.BigEndian.PutUint64(position[:], *index)
	*index++
	mac.Reset()
	mac.Write(position[:])
	mac.Write(text)
	return mac.Sum(b)
}
