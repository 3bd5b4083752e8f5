package lane

// Eager is what a message says that goes over a lane before there is a grant for it:
// a short one, which costs the receiver less to keep than both sides a grant.
//
// The receiver finds its buffer: the first of that tag, from Head on, that no message has
// come for. While the sender has not been told of that for one message it sends none of the
// same tag by a grant. So both know which buffer a message is for, whichever of them says so:
// the messages of a tag and the buffers of a tag go together in order.
type Eager struct {
	Number uint32 // among the connection's eager messages, from 1, without the bits above EagerBits
	Tag    int32
	Head   uint32 // lower half of a sequence: of the receives before it none has a buffer left for that tag
	// Ask marks what is no message: the sender wants grants from now on. Number is that of
	// the last eager message before, the rest is 0.
	Ask bool
}

// EagerMatch is a receiver's word on an eager message that has gone to its buffer.
type EagerMatch struct {
	Number uint64 // of the message
	Seq    uint32 // lower half of the sequence of the receive
	Sub    uint8  // number of the buffer
	N      uint8  // buffers of the receive
}

// EagerMatcher is a carrier of eager messages, at a receiver.
type EagerMatcher interface {
	// PutTaken queues word for the sender, for FlushTaken.
	PutMatch(t EagerMatch) error
	FlushMatches() error
}

const (
	EagerWindow = 16      // eager messages that the sender has not been told of
	EagerSize   = 1 << 10 // most bytes of one
	EagerBits   = 30      // of a number that are sent
)

// A power of two tells them apart by place, and the bits that are sent those that can be
// under way.
const (
	_ = -uint(EagerWindow & (EagerWindow - 1))
	_ = uint(1<<EagerBits - 4*EagerWindow)
)

// EagerNumber is the number near base of which n has the lower bits.
func EagerNumber(n uint32, base uint64) uint64 {
	const spare = 32 - EagerBits
	return base + uint64(int64(int32((n-uint32(base))<<spare)>>spare))
}

// Sequence is the sequence near base of which n is the lower half.
func Sequence(n uint32, base uint64) uint64 { return base + uint64(int64(int32(n-uint32(base)))) }
