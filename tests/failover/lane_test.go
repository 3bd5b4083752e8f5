package failover

// travels is what a lane carries, landing and coming back. What is on the way over a
// lane that has failed may land, or may not.
func (m model) travels(s *state, l int, out []step) []step {
	x := &s.lanes[l]
	add := func(mv move, t state, bad property) {
		out = append(out, step{mv, t, !x.broken, bad})
	}
	if x.grants != 0 {
		t := *s
		bad := m.landGrant(&t, l)
		add(words("the grant of %d lands over lane %d", x.grants.head(), l+1), t, bad)
	}
	if x.parts != 0 {
		t := *s
		p := t.lanes[l].parts.pop()
		t.lanes[l].landed.push(p)
		p = p&^marked - 1
		if x.s&stopped == 0 {
			t.lanes[l].acks |= 1 << p
		}
		var bad property
		if m.all(p/m.parts)&^s.arrived == 0 {
			bad = givenBack
		}
		add(m.part("part %d of %d lands over lane %d", p, l), t, bad)
	}
	for p := range m.messages * m.parts {
		if x.acks.has(p) && x.s&stopped == 0 {
			t := *s
			bad := m.acknowledge(&t, l, p)
			add(m.part("S learns that part %d of %d was delivered over lane %d", p, l), t, bad)
		}
	}
	for q := range m.messages {
		if x.confirms.has(q) {
			t := *s
			t.lanes[l].confirms &^= 1 << q
			t.lanes[l].rewritten &^= 1 << q
			add(words("R learns that the grant again of %d has landed over lane %d", q+1, l+1), t, "")
		}
	}
	return out
}

func (m model) part(format string, p, l int) move {
	return words(format, p%m.parts+1, p/m.parts+1, l+1)
}

// landGrant puts the first grant on its way over a lane into the ring.
func (m model) landGrant(s *state, l int) property {
	x := &s.lanes[l]
	q := x.grants.pop() - 1
	if x.rewritten.has(q) && x.r&stopped == 0 {
		x.confirms |= 1 << q
	}
	slot := &s.ring[m.slot(q)]
	lost := int(*slot) > q+1 && !s.sent.has(int(*slot)-1)
	*slot = uint8(q + 1)
	if lost {
		return grantLost
	}
	return ""
}

// fails is how a lane goes, and comes back.
func (m model) fails(s *state, l int, out []step) []step {
	x := &s.lanes[l]
	for _, w := range []side{sender, receiver} {
		e := *x.end(w)
		if fresh := !x.broken && int(s.failures) < m.failures; fresh || x.broken && e&stopped == 0 {
			t := *s
			if fresh {
				t.lanes[l].broken = true
				t.failures++
			}
			mv, bad := m.down(&t, l, w)
			out = append(out, step{mv, t, e != 0, bad})
		}
	}
	if both := x.s & x.r; both&(free|stopped) == free|stopped && int(s.replaced) < m.replaced {
		t := *s
		t.lanes[l] = lane{}
		t.replaced++
		needed := m.inService(s, sender) == 0 || m.inService(s, receiver) == 0
		out = append(out, step{words("lane %d is replaced", l+1), t, needed, ""})
	}
	return out
}

// down is rule 1 at one side: the end is stopped and drained, then LaneDown is sent.
func (m model) down(s *state, l int, w side) (move, property) {
	if w == receiver {
		bad := m.stopReceiver(s, l)
		s.tell(control{kind: laneDown, lane: uint8(l)})
		return words("lane %d is down at R: drained, LaneDown sent", l+1), bad
	}
	x := &s.lanes[l]
	if m.has(earlyLaneDown) && x.s&said == 0 {
		x.s |= said
		s.toR.push(l + 1)
		return words("lane %d is down at S: LaneDown sent, its end still open", l+1), ""
	}
	m.stopSender(s, l)
	if x.s&said != 0 {
		return words("S drains lane %d", l+1), ""
	}
	x.s |= said
	s.toR.push(l + 1)
	return words("lane %d is down at S: drained, LaneDown sent", l+1), ""
}

func (m model) stopSender(s *state, l int) {
	x := &s.lanes[l]
	x.s |= stopped
	x.grants, x.acks = 0, 0
	if m.has(earlyResend) {
		s.pending |= x.posted
		x.posted = 0
	}
}

func (m model) stopReceiver(s *state, l int) (bad property) {
	x := &s.lanes[l]
	for x.landed != 0 && bad == "" {
		bad = m.poll(s, l)
	}
	x.r |= stopped | said
	x.parts, x.confirms = 0, 0
	if m.has(earlyRewrite) {
		s.regrant |= x.granted
		x.granted = 0
	}
	if m.has(forgotten) {
		x.rewritten = 0
	}
	return bad
}
