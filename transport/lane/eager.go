package lane

// Eager is the header of a short message that goes over a lane before there is a grant for it. Keeping such a
// message costs the receiver less than a grant costs both sides.
//
// The receiver matches the message to the first buffer with its tag, from receive Head on, that has no message
// yet. Until the receiver has reported the match, the sender sends no further message of that tag by a grant.
// Both sides therefore agree which buffer a message belongs to: messages and buffers of one tag are matched in
// order.
type Eager struct {
	Number uint32 // counts the connection's eager messages from 1; the lower EagerBits bits
	Tag    int32
	Head   uint32 // lower half of a sequence: no earlier receive has a free buffer with that tag
	// Ask marks a header without a message: the sender requests grants from now on. Number is that of the last
	// eager message; the other fields are 0.
	Ask bool
}

// EagerMatch is a receiver's report of the buffer that an eager message was copied into.
type EagerMatch struct {
	Number uint64 // of the message
	Seq    uint32 // lower half of the sequence of the receive
	Sub    uint8  // number of the buffer
	N      uint8  // number of buffers of the receive
}

// EagerMatcher is implemented by carriers that can carry eager messages, and is used by the receiver.
type EagerMatcher interface {
	// PutMatch queues a report for the sender. FlushMatches sends the queued reports.
	PutMatch(t EagerMatch) error
	FlushMatches() error
}

const (
	EagerWindow = 16      // eager messages without a report from the receiver, at most
	EagerSize   = 1 << 10 // bytes of one message, at most
	EagerBits   = 30      // bits of a number that are sent
)

// The window is a power of two, because a message's slot is its number modulo the window; and the bits that are
// sent distinguish all messages that can be in flight.
const (
	_ = -uint(EagerWindow & (EagerWindow - 1))
	_ = uint(1<<EagerBits - 4*EagerWindow)
)

// EagerNumber returns the number nearest to base whose lower EagerBits bits are n.
func EagerNumber(n uint32, base uint64) uint64 {
	const spare = 32 - EagerBits
	return base + uint64(int64(int32((n-uint32(base))<<spare)>>spare))
}

// Sequence returns the sequence number nearest to base whose lower half is n.
func Sequence(n uint32, base uint64) uint64 { return base + uint64(int64(int32(n-uint32(base)))) }
