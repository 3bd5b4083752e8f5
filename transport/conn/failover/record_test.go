package failover

import "testing"

// The sender's parts are settled lane by lane. Only parts of the lane in question change.
func TestSettleParts(t *testing.T) {
	const three = 0b111
	for _, tt := range []struct {
		name                 string
		undelivered, arrived uint32
		named                bool
		delivered, lost      uint32
		ok                   bool
	}{
		{"nothing was acknowledged and nothing arrived", three, 0, true, 0, 0b101, true},
		{"one of two arrived", three, 0b001, true, 0b001, 0b100, true},
		{"the receive is complete", three, 0, false, 0b101, 0, true},
		{"what was acknowledged has arrived", 0b110, 0b001, true, 0, 0b100, true},
		{"what was acknowledged over another lane has not arrived", 0b101, 0b101, true, 0b101, 0, true},
		{"what was acknowledged has not arrived", 0b110, 0b100, true, 0, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Parts{Lanes: [MaxParts]uint8{4, 5, 4, 4}}
			p.Begin(3)
			delivered, ok := p.Settle(4, tt.undelivered, tt.named, tt.arrived)
			if delivered != tt.delivered || p.Lost != tt.lost || ok != tt.ok {
				t.Errorf("delivered %b, lost %b, %v; want %b, %b, %v", delivered, p.Lost, ok, tt.delivered, tt.lost, tt.ok)
			}
		})
	}
}

// A message of as many parts as there can be has a bit for each.
func TestSettleAllParts(t *testing.T) {
	var p Parts
	p.Begin(MaxParts)
	delivered, ok := p.Settle(0, 1<<MaxParts-1, true, 1<<31)
	if delivered != 1<<31 || p.Lost != 1<<31-1 || !ok {
		t.Errorf("delivered %b, lost %b, %v", delivered, p.Lost, ok)
	}
}

// Nothing is sent again without credit, a part uses credit once, and the receiver counts what it gave.
func TestCredit(t *testing.T) {
	var c Credit
	var p Parts
	p.Begin(2)
	p.Lost = 0b11
	if c.MaySend(&p, 0) {
		t.Error("a part may be sent again before the receiver has given credit")
	}
	a := NewAllowance(2)
	if ok, _ := a.Use(); ok {
		t.Error("the receiver takes a part that was sent again before it has given credit")
	}
	c.Add(a.Renew())
	for k := range 2 {
		if !c.MaySend(&p, k) {
			t.Fatalf("part %d may not be sent again", k)
		}
		c.Sent(&p, k, 9)
	}
	p.Lost = 0b01
	if !c.MaySend(&p, 0) {
		t.Error("a part that is lost again needs new credit")
	}
	c.Sent(&p, 0, 8)
	if p.Lost != 0 || p.Lanes[0] != 8 || p.Lanes[1] != 9 {
		t.Errorf("lost %b, over lanes %v", p.Lost, p.Lanes[:2])
	}
	if ok, due := a.Use(); !ok || !due {
		t.Errorf("half of the credit is used: %v, %v", ok, due)
	}
	if more := a.Renew(); more != 1 {
		t.Errorf("%d parts more, want the one that arrived", more)
	}
	var next Parts
	next.Begin(1)
	if c.MaySend(&next, 0) {
		t.Error("more parts may be sent again than the receiver gave credit for")
	}
}

// Grants are repeated if they went last over the lane and may not have landed; and until repetitions have landed, their slots are
// not granted again.
func TestGrants(t *testing.T) {
	g := NewGrants(8)
	var lanes Lanes
	for l := range uint8(2) {
		lanes.Step(l, 0, Joined)
	}
	for slot := range uint8(4) {
		g.Sent(slot, slot%2)
	}
	for _, e := range []Event{Failed, PeerDown, Drained, Reported} {
		lanes.Step(1, 0, e)
	}
	g.Settle(1, []Receive{{Slot: 0}, {Slot: 1}, {Slot: 3, Proved: true}})
	for slot := range uint8(8) {
		if got, want := g.Waits(slot), slot == 1; got != want {
			t.Errorf("the grant of slot %d is to be sent again: %v, want %v", slot, got, want)
		}
	}
	if g.MayGrant(5) || !g.MayMove(1, &lanes, false) || g.MayMove(0, &lanes, false) || !g.MayMove(0, &lanes, true) {
		t.Errorf("a new grant may go first: %v; the grants of a settled lane, another, and that if it is polled may move: %v, %v, %v",
			g.MayGrant(5), g.MayMove(1, &lanes, false), g.MayMove(0, &lanes, false), g.MayMove(0, &lanes, true))
	}
	g.Repeated(1, 0)
	if g.Waiting() || g.MayGrant(1) || !g.MayGrant(5) || g.Lane(1) != 0 {
		t.Errorf("waiting %v, slot 1 may be granted %v, slot 5 %v; slot 1 went over lane %d", g.Waiting(), g.MayGrant(1), g.MayGrant(5), g.Lane(1))
	}
	g.Repeat(1)
	g.Repeat(1)
	g.Repeated(1, 0)
	g.Landed(1)
	if g.MayGrant(1) {
		t.Error("one of two repeated grants has landed, and the slot may be granted")
	}
	g.Settle(0, []Receive{{Slot: 1, Proved: true}}) // the repetition may carry a key
	if !g.Waits(1) {
		t.Error("a repeated grant that may be lost is not sent again")
	}
	g.Drop(1)
	g.Drop(1)
	g.Landed(1) // too late
	if !g.MayGrant(1) {
		t.Error("the slot of a complete receive may not be granted, and nothing is on its way")
	}
	g.Repeat(2)
	g.Reset()
	if g.Waiting() || g.Waits(2) {
		t.Error("after the end a grant is to be sent again")
	}
}
