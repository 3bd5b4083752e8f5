package failover

import "math/bits"

// receives is what the receiver does of itself: grants, grants again, polls, Reports.
func (m model) receives(s *state, out []step) []step {
	out = m.grants(s, out)
	for l := range m.lanes {
		x := &s.lanes[l]
		if x.landed != 0 {
			t := *s
			bad := m.poll(&t, l)
			out = append(out, step{m.part("R counts part %d of %d from lane %d", x.landed.head()&^marked-1, l), t, true, bad})
		}
		if need := m.beforeReport(); x.r&reported == 0 && x.r&need == need {
			t := *s
			m.report(&t, l)
			out = append(out, step{words("R reports on lane %d", l+1), t, true, ""})
		}
		if x.r&(reported|told|free) == reported|told {
			t := *s
			m.release(&t, l)
			out = append(out, step{words("R has done with lane %d", l+1), t, true, ""})
		}
	}
	return out
}

// grants is rule 3: what is to be granted again goes first, in order.
func (m model) grants(s *state, out []step) []step {
	over := func(q int, format string) {
		for l := range m.lanes {
			if s.lanes[l].r == 0 {
				t := *s
				m.grant(&t, q, l)
				out = append(out, step{words(format, q+1, l+1), t, true, ""})
			}
		}
	}
	if s.regrant != 0 {
		q := bits.TrailingZeros8(uint8(s.regrant))
		over(q, "R grants %d again over lane %d")
		if m.all(q)&s.arrived != 0 { // the sender has the grant
			t := *s
			t.regrant &^= 1 << q
			out = append(out, step{words("R need not grant %d again", q+1), t, false, ""})
		}
	}
	if (s.regrant == 0 || m.has(overtaking)) && m.slotFree(s, int(s.granted)) {
		over(int(s.granted), "R grants %d over lane %d")
	}
	return out
}

// slotFree reports whether receive q may be granted: it is within the window, and
// nothing that was written again into its slot is under way.
func (m model) slotFree(s *state, q int) bool {
	for k := range q {
		if k <= q-m.window && m.all(k)&^s.arrived != 0 {
			return false
		}
		for l := range m.lanes {
			if m.slot(k) == m.slot(q) && s.lanes[l].rewritten.has(k) && !m.has(untracked) {
				return false
			}
		}
	}
	return q < m.messages
}

// grant writes the grant of a receive into the sender's ring over lane l.
func (m model) grant(s *state, q, l int) {
	x := &s.lanes[l]
	if s.regrant.has(q) {
		s.regrant &^= 1 << q
		x.rewritten |= 1 << q
	} else {
		s.granted++
	}
	if m.all(q)&s.arrived == 0 {
		x.granted |= 1 << q
	}
	if x.s&stopped == 0 {
		x.grants.push(q + 1)
	}
}

// poll counts the part that landed first over a lane, as its immediate says.
func (m model) poll(s *state, l int) property {
	item := s.lanes[l].landed.pop()
	p := item&^marked - 1
	q := p / m.parts
	switch r := m.outstanding(s, m.slot(q)); {
	case r < 0:
		return noReceive
	case r != q:
		return otherReceive
	case s.arrived.has(p):
		return countedTwice
	}
	s.arrived |= 1 << p
	for i := range m.lanes {
		s.lanes[i].granted &^= 1 << q
		s.lanes[i].acked &^= 1 << p
	}
	if item&marked != 0 && m.again > 0 {
		s.allowed--
		if used := m.again - int(s.allowed); used >= (m.again+1)/2 {
			s.tell(control{kind: moreAgain, more: m.leave(s)})
		}
	}
	return ""
}

// leave is how many more parts a Report lets the sender send again.
func (m model) leave(s *state) uint8 {
	n := uint8(m.again) - s.allowed
	s.allowed = uint8(m.again)
	return n
}

// beforeReport is what the receiver waits for before it reports on a lane.
func (m model) beforeReport() end {
	switch {
	case m.has(earlyReport):
		return told
	case m.has(deafReport):
		return stopped
	}
	return stopped | told
}

// report is rule 2.
func (m model) report(s *state, l int) {
	c := control{kind: report, lane: uint8(l), more: m.leave(s)}
	for q := range int(s.granted) {
		if m.all(q)&^s.arrived != 0 {
			c.named |= 1 << q
			c.arrived |= s.arrived & m.all(q)
		}
	}
	s.tell(c)
	s.lanes[l].r |= reported
	if s.lanes[l].r&told != 0 {
		m.release(s, l)
	}
}

// release is the end of rule 2: nothing of the lane's lands at the sender any more, so
// what was granted over it can be granted again.
func (m model) release(s *state, l int) {
	x := &s.lanes[l]
	for i := range m.lanes {
		if y := &s.lanes[i]; i == l || m.has(allAgain) {
			s.regrant |= y.granted
			y.granted = 0
		}
	}
	x.rewritten = 0
	x.r |= free
}
