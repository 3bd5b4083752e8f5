package adapter

import (
	"fmt"

	"ncclmesh/ibv"
)

// A kind is what a packet is for.
type kind uint8

const (
	kindRequest  kind = 0 // of SEND and WRITE, with data
	kindRead     kind = 1 // asks for data
	kindReadData kind = 2
	kindAck      kind = 3
	kindNak      kind = 4
)

func (k kind) String() string {
	return [...]string{"request", "read request", "read data", "acknowledgement", "refusal"}[k]
}

// A reason is why a request was refused.
type reason uint8

const (
	outOfOrder reason = 0
	notReady   reason = 1
	badRequest reason = 2
	badAccess  reason = 3
	badPeer    reason = 4
)

func (r reason) String() string {
	return [...]string{"out of order", "receiver not ready", "invalid request", "access", "operation"}[r]
}

// A packet is a burst of packets of one request that are sent one after the other.
type packet struct {
	kind      kind
	to        *Port
	qpn, from uint32 // queue pairs
	ece       uint32 // options in effect of the one that sends it
	psn       uint32 // of the first, or what an acknowledgement acknowledges
	count     uint32 // packets
	number    uint32 // of the first since the connection began, for the trace: programs draw where they begin to count

	// Of a request.
	opcode      uint32
	first, last bool
	offset      uint64 // of data in the message
	length      uint64 // of the message; of a READ, of what is still asked for
	address     uint64 // of the message at the responder
	rkey        uint32
	imm         uint32
	solicited   bool
	ackNow      bool
	data        []byte

	reason reason // of a refusal
	timer  byte   // that the responder asks the requester to wait for when it is not ready
}

// what names the arrival in the trace.
func (p *packet) what() string {
	if p.kind == kindNak {
		return fmt.Sprintf("%v (%v) of %d for %#x", p.kind, p.reason, p.number, p.qpn)
	}
	return fmt.Sprintf("%v %d+%d for %#x", p.kind, p.number, p.count, p.qpn)
}

// withImm reports whether an operation takes a receive for its last packet alone.
func withImm(opcode uint32) bool { return opcode == ibv.IBV_WR_RDMA_WRITE_WITH_IMM }

// isSend reports whether an operation puts its data into a receive.
func isSend(opcode uint32) bool {
	return opcode == ibv.IBV_WR_SEND || opcode == ibv.IBV_WR_SEND_WITH_IMM
}

// ahead is how far a packet's number is ahead of another's: negative where it is behind. Numbers have 24 bits.
func ahead(psn, of uint32) int { return int(int32((psn-of)<<8) >> 8) }

// plus adds to a packet's number.
func plus(psn, n uint32) uint32 { return (psn + n) & 0xffffff }
