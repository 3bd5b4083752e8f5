package verbs

import (
	"encoding/binary"
	"fmt"

	"ncclmesh/ibv"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// writes returns the number of work requests of a part of b bytes.
func (q *queuePair) writes(b int) int {
	return max(1, (b+int(q.chunk)-1)/int(q.chunk))
}

// Reaches reports whether a grant has a remote key for the peer's device, which a non-empty buffer needs.
func (q *queuePair) Reaches(g *lane.Grant) bool { return g.Capacity == 0 || g.RKeys[q.place] != 0 }

// Room reports whether the send queue has room for the writes of a part.
func (q *queuePair) Room(b int) (bool, error) {
	w := q.writes(b)
	if w > len(q.wr) {
		return false, fmt.Errorf("%w: %v: %v: a part of %d bytes takes %d writes of %d bytes, more than %d", fault.ErrUsage, q.lane.Conn, q.lane, b, w, q.chunk, len(q.wr))
	}
	return q.credits >= w, nil
}

// Send posts plain writes of a chunk each, and one with the immediate for the rest. A part of a put has no immediate.
func (q *queuePair) Send(p *lane.Part) error {
	n := q.writes(p.Size)
	p.Imm.Writes = uint8(n - 1)
	var lkey uint32
	if p.Size > 0 {
		lkey = p.Region.LKeys[q.domain.place]
	}
	local, to, rest := uint64(p.Local), p.Grant.Addr+p.Offset, p.Size
	rkey := p.Grant.RKeys[q.place]
	for i := range n {
		w, e := &q.wr[i], &q.sge[i]
		length := min(rest, int(q.chunk))
		e.Addr, e.Length, e.LKey = local, uint32(length), lkey
		w.WRID = wrID(wrPart, q.lane.Index, p.Request, 0)
		w.SGList, w.NumSGE = ibv.AddrOf(e), 1
		w.Opcode, w.SendFlags = ibv.IBV_WR_RDMA_WRITE, 0
		w.RemoteAddr, w.RKey = to, rkey
		w.Next = 0
		if i+1 < n {
			w.Next = ibv.AddrOf(&q.wr[i+1])
		} else {
			w.WRID = wrID(wrPart, q.lane.Index, p.Request, n) | uint64(p.Imm.Part)
			w.SendFlags = ibv.IBV_SEND_SIGNALED
			if p.Inline && n == 1 && length > 0 && uint32(length) <= q.qp.MaxInline() {
				w.SendFlags |= ibv.IBV_SEND_INLINE
			}
			if p.Window == 0 {
				w.Opcode, w.Imm = ibv.IBV_WR_RDMA_WRITE_WITH_IMM, networkOrder(p.Imm.Encode())
			}
			if length == 0 {
				w.SGList, w.NumSGE = 0, 0
			}
		}
		local += uint64(length)
		to += uint64(length)
		rest -= length
	}
	if _, err := q.qp.PostSend(&q.wr[0]); err != nil {
		return fmt.Errorf("%v: %v: %w", q.lane.Conn, q.lane, err)
	}
	q.credits -= n
	q.domain.sends++
	return nil
}

// Grantable reports whether the send queue has room for a write.
func (q *queuePair) Grantable() bool { return q.credits > 0 }

// Prepare posts receives. The grant relies on them: there are always more posted receives than sub-receives can
// be outstanding.
func (q *queuePair) Prepare() error {
	if q.posted > recvDepth-recvBatch {
		return nil
	}
	if err := q.fillReceives(); err != nil {
		return fmt.Errorf("%v: %v: %w", q.lane.Conn, q.lane, err)
	}
	return nil
}

// SendGrant writes entries, which are a slot of this side's copy of the ring, into the sender's ring.
func (q *queuePair) SendGrant(seq uint64, entries []lane.Grant, again bool) error {
	c := q.lane.Conn
	length := uint32(len(entries)) * lane.EntrySize
	q.sge[0] = ibv.SGE{Addr: uint64(ibv.AddrOf(&entries[0])), Length: length, LKey: q.domain.ringMR.LKey()}
	w := &q.wr[0]
	w.SGList, w.NumSGE, w.Next = ibv.AddrOf(&q.sge[0]), 1, 0
	w.Opcode, w.SendFlags = ibv.IBV_WR_RDMA_WRITE, 0
	w.RemoteAddr, w.RKey = c.PeerBase+lane.GrantOffset(seq), c.PeerKeys[q.place]
	w.WRID = wrID(wrGrant, q.lane.Index, 0, 0)
	if length <= q.qp.MaxInline() {
		w.SendFlags = ibv.IBV_SEND_INLINE
	}
	q.unsignalled++
	signal := again || q.unsignalled == grantSignal
	if signal {
		w.SendFlags |= ibv.IBV_SEND_SIGNALED
		w.WRID = wrID(wrGrant, q.lane.Index, 0, q.unsignalled)
	}
	if again {
		w.WRID = wrID(wrGrantAgain, q.lane.Index, int(lane.SlotOf(seq)), q.unsignalled)
	}
	if _, err := q.qp.PostSend(w); err != nil {
		return fmt.Errorf("%v: %v: %w", c, q.lane, err)
	}
	q.credits--
	if signal {
		q.unsignalled = 0
		q.domain.sends++
	}
	return nil
}

// chainReceives prepares the chain of receive work requests, which never changes. They have no buffer, because
// a write with immediate only consumes a receive for its completion.
func (q *queuePair) chainReceives(recv []ibv.RecvWR) {
	for i := range recv {
		recv[i] = ibv.RecvWR{WRID: wrID(wrRecv, q.lane.Index, 0, 0)}
		if i+1 < len(recv) {
			recv[i].Next = ibv.AddrOf(&recv[i+1])
		}
	}
	q.recv = recv
}

// fillReceives posts receives until recvDepth are posted.
func (q *queuePair) fillReceives() error {
	for q.posted < recvDepth {
		n := min(recvDepth-q.posted, len(q.recv))
		last := &q.recv[n-1]
		next := last.Next
		last.Next = 0
		_, err := q.qp.PostRecv(&q.recv[0])
		last.Next = next
		if err != nil {
			return err
		}
		q.posted += n
	}
	return nil
}

// Fetch does nothing, because the device writes grants into the ring.
func (q *queuePair) Fetch() {}

// HasPendingOutput returns false, because the device acknowledges writes.
func (q *queuePair) HasPendingOutput() bool { return false }

// Delivering returns true until the peer's process has ended, because the peer keeps its queue pairs open for a
// while after closing the connection.
func (q *queuePair) Delivering(gone bool) bool { return !gone }

// Stalled returns true, because devices deliver without the help of a process.
func (q *queuePair) Stalled() bool { return true }

// Unsent returns 0, because no kernel buffers the data.
func (q *queuePair) Unsent() int { return 0 }

// networkOrder converts a number to the word that a work request or a completion stores, with the immediate's
// bytes in network order, and back.
func networkOrder(v uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return binary.NativeEndian.Uint32(b[:])
}
