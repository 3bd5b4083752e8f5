package bootstrap

import (
	"encoding/binary"
	"fmt"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/printable"
	"ncclmesh/transport/fault"
)

// version is the version of the messages. Both sides must have the same.
const version = 1

// Kinds of messages. All numbers are big-endian.
//
//	join      version 1, rank 4, size 4, time-out in ms 8, handle 128
//	table     a handle of 128 bytes for each rank
//	gather    number 8, barrier 1, time-out in ms 8, data
//	gathered  number 8, data of all ranks in order
//	failed    number 8 (0: the set-up), kind 1, text
//	leave     nothing
const (
	kindJoin     = 1
	kindTable    = 2
	kindGather   = 3
	kindGathered = 4
	kindFailed   = 5
	kindLeave    = 6
)

const (
	joinSize   = 1 + 1 + 4 + 4 + 8 + handshake.HandleSize
	gatherHead = 1 + 8 + 1 + 8
	replyHead  = 1 + 8

	maxText = 600 // bytes of the text of a failure
)

// join is a rank's request to take part in the job.
type join struct {
	rank, size int
	timeout    time.Duration
	handle     [handshake.HandleSize]byte // of the rank's own listener
}

func (j *join) encode() []byte {
	b := make([]byte, 0, joinSize)
	b = append(b, kindJoin, version)
	b = binary.BigEndian.AppendUint32(b, uint32(j.rank))
	b = binary.BigEndian.AppendUint32(b, uint32(j.size))
	b = binary.BigEndian.AppendUint64(b, uint64(j.timeout.Milliseconds()))
	return append(b, j.handle[:]...)
}

func decodeJoin(b []byte) (*join, error) {
	switch {
	case len(b) < 2 || b[0] != kindJoin:
		return nil, fmt.Errorf("%w: the first message is not a request to join", fault.ErrProtocol)
	case b[1] != version:
		return nil, fmt.Errorf("%w: it uses version %d of the bootstrap messages, this process version %d: install the same library on every node", fault.ErrUsage, b[1], version)
	case len(b) != joinSize:
		return nil, fmt.Errorf("%w: a request to join of %d bytes, want %d", fault.ErrProtocol, len(b), joinSize)
	}
	j := &join{
		rank:    int(binary.BigEndian.Uint32(b[2:])),
		size:    int(binary.BigEndian.Uint32(b[6:])),
		timeout: milliseconds(b[10:]),
	}
	copy(j.handle[:], b[18:])
	return j, nil
}

// milliseconds reads a time-out. A time-out that no program would set is cut, so that sums do not overflow.
func milliseconds(b []byte) time.Duration {
	const longest = 365 * 24 * time.Hour
	return time.Duration(min(binary.BigEndian.Uint64(b), uint64(longest.Milliseconds()))) * time.Millisecond
}

// gather is a rank's part in an all-gather or a barrier.
type gather struct {
	number  uint64 // counts the calls of the rank, from 1
	barrier bool
	timeout time.Duration
	data    []byte
}

func (g *gather) encode() []byte {
	b := make([]byte, 0, gatherHead+len(g.data))
	b = append(b, kindGather)
	b = binary.BigEndian.AppendUint64(b, g.number)
	if g.barrier {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(g.timeout.Milliseconds()))
	return append(b, g.data...)
}

func decodeGather(b []byte) (*gather, error) {
	if len(b) < gatherHead {
		return nil, fmt.Errorf("%w: part of an all-gather of %d bytes, want at least %d", fault.ErrProtocol, len(b), gatherHead)
	}
	return &gather{number: binary.BigEndian.Uint64(b[1:]), barrier: b[9] == 1, timeout: milliseconds(b[10:]), data: b[gatherHead:]}, nil
}

// call returns the name of the function that the rank called.
func (g *gather) call() string {
	if g.barrier {
		return "a barrier"
	}
	return fmt.Sprintf("an all-gather of %d bytes", len(g.data))
}

// reply makes the head of a message to a member about its call of that number.
func reply(kind byte, number uint64, size int) []byte {
	b := make([]byte, 0, replyHead+size)
	return binary.BigEndian.AppendUint64(append(b, kind), number)
}

// A failure is the reason why a call failed on all ranks.
type failure struct {
	kind byte
	text string
}

// Kinds of failures, as they are sent.
var kinds = [...]error{1: fault.ErrUsage, 2: fault.ErrPeerGone, 3: fault.ErrUnreachable, 4: fault.ErrInternal}

const (
	failedUsage       = 1
	failedGone        = 2
	failedUnreachable = 3
	failedInternal    = 4
)

func (f *failure) encode(number uint64) []byte {
	text := printable.Line(f.text, maxText)
	return append(append(reply(kindFailed, number, 1+len(text)), f.kind), text...)
}

// decodeFailed returns the number of the call that failed, and its error.
func decodeFailed(b []byte) (number uint64, err error) {
	if len(b) < replyHead+1 {
		return 0, fmt.Errorf("%w: a failure of %d bytes, want at least %d", fault.ErrProtocol, len(b), replyHead+1)
	}
	kind := fault.ErrProtocol
	if k := int(b[replyHead]); k > 0 && k < len(kinds) {
		kind = kinds[k]
	}
	return binary.BigEndian.Uint64(b[1:]), fmt.Errorf("%w: %s", kind, printable.Line(string(b[replyHead+1:]), maxText))
}
