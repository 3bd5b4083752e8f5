package failover

// Grants is the receiver's record of the grants that it has written into the sender's ring: which lane carried the last grant of
// each slot, which are to be sent again, and which of those may still be on their way.
type Grants struct {
	lane     []uint8  // by slot: index of the lane that carried the last grant
	again    []bool   // by slot: the grant is to be sent again
	waiting  int      // number of slots in again
	inFlight []uint16 // by slot: how many repeated grants may not have landed
}

// NewGrants returns a record for a ring of that many slots, none of which was granted.
func NewGrants(slots int) Grants {
	return Grants{lane: make([]uint8, slots), again: make([]bool, slots), inFlight: make([]uint16, slots)}
}

// Lane returns the index of the lane that carried the last grant of a slot.
func (g *Grants) Lane(slot uint8) uint8 { return g.lane[slot] }

// MayGrant reports whether a new grant may be written into a slot. Grants that are to be sent again go first. A slot into which a
// repeated grant may still be written is not used, because that grant would overwrite the new one.
func (g *Grants) MayGrant(slot uint8) bool { return g.waiting == 0 && g.inFlight[slot] == 0 }

// Sent notes that a new grant was sent over a lane.
func (g *Grants) Sent(slot, lane uint8) { g.lane[slot] = lane }

// Repeat queues the grant of a slot to be sent again.
func (g *Grants) Repeat(slot uint8) {
	if !g.again[slot] {
		g.again[slot] = true
		g.waiting++
	}
}

// Waiting reports whether the grant of any slot is to be sent again.
func (g *Grants) Waiting() bool { return g.waiting > 0 }

// Waits reports whether the grant of a slot is to be sent again.
func (g *Grants) Waits(slot uint8) bool { return g.again[slot] }

// MayMove reports whether the grant of a slot may be sent again over another lane than the one that carried it last. It may once
// that lane is settled: its grants have landed or are lost. Until then the repeated grant could overtake the one before, which a
// device would then write into the slot of a later receive. polled says that the lane is polled: the sender's processor writes
// its grants into the ring, and ignores those that come too late, so that they may move at any time.
func (g *Grants) MayMove(slot uint8, lanes *Lanes, polled bool) bool {
	return polled || lanes.At(g.lane[slot]) == Vacant
}

// Repeated notes that the grant of a slot was sent again over a lane.
func (g *Grants) Repeated(slot, lane uint8) {
	g.lane[slot] = lane
	g.inFlight[slot]++
	g.Drop(slot)
}

// Drop removes a slot from those whose grants are to be sent again.
func (g *Grants) Drop(slot uint8) {
	if g.again[slot] {
		g.again[slot] = false
		g.waiting--
	}
}

// Landed notes that a repeated grant has landed in a slot.
func (g *Grants) Landed(slot uint8) {
	if g.inFlight[slot] > 0 {
		g.inFlight[slot]--
	}
}

// Receive is a receive that is not complete.
type Receive struct {
	Slot uint8
	// Proved says that what has arrived for the receive proves that the sender had its grant.
	Proved bool
}

// Settle queues the grants to be sent again that went last over a lane, now that the lane is drained at both ends and its grants
// have landed or are lost. It leaves out grants that have proved to have landed, but not if one was on its way again: the
// repetition may carry a key that the sender lacks. incomplete are all receives that were granted and are not complete.
func (g *Grants) Settle(lane uint8, incomplete []Receive) {
	for _, r := range incomplete {
		if g.lane[r.Slot] == lane && (!r.Proved || g.inFlight[r.Slot] > 0) {
			g.Repeat(r.Slot)
		}
	}
	for slot, l := range g.lane {
		if l == lane {
			g.inFlight[slot] = 0
		}
	}
}

// Reset forgets the grants that are to be sent again and those on their way, because the connection has ended.
func (g *Grants) Reset() {
	clear(g.again)
	clear(g.inFlight)
	g.waiting = 0
}
