package circuit

import (
	"encoding/binary"
	"fmt"

	"ncclmesh/ibv"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/relay/hop"
)

// A grant on its way is as a socket's: kind 1 | n 1 | zero 6 | sequence 8, and for each of
// n buffers capacity 4 | tag 4.
const (
	grantBuffer = 8
	kindGrant   = 1
)

// grants are the frames that a receiver sends back: a ring in heads, by sequence.
type grants struct {
	total   uint64                   // frames so far
	entries [lane.MaxSubs]lane.Grant // of the grant that has come, at the sender
}

// Grantable reports whether another grant can wait.
func (c *carrier) Grantable() bool { return c.total-c.out.Arrived() < backQueue }

// Prepare has nothing to do.
func (c *carrier) Prepare() error { return nil }

// SendGrant queues a grant, and sends what there is room for.
func (c *carrier) SendGrant(seq uint64, entries []lane.Grant, again bool) error {
	if again { // the sender's processor sees that it comes too late, if it does
		c.lane.Conn.Sink.Regranted(c.lane, lane.SlotOf(seq))
	}
	h := hop.Header{Kind: hop.Grant, Length: uint32(len(entries)) * grantBuffer, Socket: [2]uint64{kindGrant | uint64(len(entries))<<8, seq}}
	c.queueBack(&h, entries)
	return c.flushGrants()
}

// put appends a frame to what goes back.
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

// back is where a frame lies that goes back.
func (c *carrier) backFrame(seq uint64) []byte { return c.heads[seq%backQueue*backSize:][:backSize] }

// flushGrants sends the frames back that there is room for.
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

// granted hands a grant on.
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

// Fetch takes in grants.
func (c *carrier) Fetch() { c.poll() }
