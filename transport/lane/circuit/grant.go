package circuit

import (
	"encoding/binary"
	"fmt"

	"ncclmesh/ibv"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/relay/hop"
)

// A grant has the format of package tcp: kind 1 | n 1 | zero 6 | sequence 8, and for each of
// n buffers capacity 4 | tag 4.
const (
	grantBuffer = 8
	kindGrant   = 1
)

// grants holds the frames that a receiver sends back, in a ring in heads, by sequence.
type grants struct {
	total   uint64                   // frames queued so far
	entries [lane.MaxSubs]lane.Grant // of the grant that has arrived, at the sender
}

// Grantable reports whether another grant can be queued.
func (c *carrier) Grantable() bool { return c.total-c.out.Arrived() < backQueue }

// Prepare does nothing: receives are posted again as frames are handled.
func (c *carrier) Prepare() error { return nil }

// SendGrant queues a grant and sends the frames that the window has room for.
func (c *carrier) SendGrant(seq uint64, entries []lane.Grant, again bool) error {
	if again { // the sender's processor detects a grant that comes too late
		c.lane.Conn.Sink.Regranted(c.lane, lane.SlotOf(seq))
	}
	h := hop.Header{Kind: hop.Grant, Length: uint32(len(entries)) * grantBuffer, Socket: [2]uint64{kindGrant | uint64(len(entries))<<8, seq}}
	c.queueBack(&h, entries)
	return c.flushGrants()
}

// queueBack appends a frame to those that are sent back.
func (c *carrier) queueBack(h *hop.Header, entries []lane.Grant) {
	c.total++
	h.Seq = c.total
	b := c.backFrame(h.Seq)
	h.Encode(b)
	for i := range entries {
		at := b[hop.HeaderSize+i*grantBuffer:]
		binary.LittleEndian.PutUint32(at[0:], entries[i].Capacity)
		binary.LittleEndian.PutUint32(at[4:], entries[i].Tag)
	}
}

// backFrame returns the buffer of a frame that is sent back.
func (c *carrier) backFrame(seq uint64) []byte { return c.heads[seq%backQueue*backSize:][:backSize] }

// flushGrants sends back the queued frames that the window has room for.
func (c *carrier) flushGrants() error {
	for c.out.Sent < c.total {
		b := c.backFrame(c.out.Sent + 1)
		size := hop.HeaderSize + int(binary.LittleEndian.Uint32(b[8:]))
		place, ok := c.out.Take(size)
		if !ok {
			return nil
		}
		if err := c.half.Frame(&c.out, place, 0, hop.Piece{Addr: ibv.AddrOf(&b[0]), Length: size, Key: c.mr.LKey()}, hop.Piece{}); err != nil {
			return c.wrap(err)
		}
	}
	return nil
}

// handleGrant passes a grant to the message layer.
func (c *carrier) handleGrant(h *hop.Header, payload []byte) error {
	n := uint8(h.Socket[0] >> 8)
	if h.Socket[0] != kindGrant|uint64(n)<<8 || n < 1 || n > lane.MaxSubs || h.Length != uint32(n)*grantBuffer {
		return fmt.Errorf("a grant %#x of %d bytes", h.Socket[0], h.Length)
	}
	for i := range n {
		at := payload[int(i)*grantBuffer:]
		c.entries[i] = lane.Grant{
			Capacity: binary.LittleEndian.Uint32(at[0:]), Tag: binary.LittleEndian.Uint32(at[4:]),
			N: n, Sub: i,
		}
	}
	return c.lane.Conn.Sink.Granted(h.Socket[1], c.entries[:n])
}

// Fetch polls for grants.
func (c *carrier) Fetch() { c.poll() }
