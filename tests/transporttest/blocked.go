package transporttest

import (
	"slices"
	"testing"

	"ncclmesh/ibv"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
)

// Blocked is a message that does not arrive, and its memory, which a test may take
// away.
type Blocked struct {
	From, To             *ibv.Memory
	FromRegion, ToRegion *lane.Region
	Send, Recv           *conn.Request
}

// Block is a connection's first message, of that size: over sockets it waits for the
// receiver to read, over queue pairs its packets are lost.
func Block(t *testing.T, s *conn.Sender, r *conn.Receiver, size int) (b Blocked) {
	t.Helper()
	b.From, _ = Memory(t, size)
	b.To, _ = Memory(t, size)
	b.FromRegion, b.ToRegion = Register(t, s, b.From), Register(t, r, b.To)
	b.Recv = Irecv(t, r, conn.Buffer{Addr: b.To.Addr(), Size: size, Region: b.ToRegion})
	if slices.Contains(Kinds(&s.Conn), lane.Verbs) {
		Await(t, "the grant", func() bool {
			const other = 1 // tag
			if q, err := s.Isend(b.From.Addr(), 1, other, b.FromRegion); q != nil || err != nil {
				t.Fatalf("a send with a tag nobody waits for: %v, %v", q, err)
			}
			return lane.Acquire(&s.Ring.Slot(1)[0].Seq) == 1
		})
		Stall(t)
		t.Cleanup(func() { Heal(t) })
	}
	b.Send = Isend(t, s, b.From, 0, size, 0, b.FromRegion)
	for range 50 {
		if ok, err := b.Send.Test(nil); ok || err != nil {
			t.Fatalf("a send that cannot arrive: %v, %v", ok, err)
		}
		Settle(t)
	}
	return b
}
