package failover

// receives is what the receiver does of itself: it grants, repeats grants, polls, reports and closes.
func (m model) receives(s *state, out []step) []step {
	if s.r.closed {
		return out
	}
	out = m.grants(s, out)
	for l := range m.lanes {
		x := &s.wires[l]
		if x.landed != 0 {
			t := s.clone()
			bad := m.poll(t, l)
			out = append(out, step{m.part("R counts part %d of %d from lane %d", x.landed.head()&^again-1, l), t, true, bad})
		}
		switch at := s.r.At(uint8(l)); {
		case at == BothDrained:
			t := s.clone()
			t.r.Step(uint8(l), x.epoch, Reported)
			if !x.reported {
				m.report(t, l)
			}
			out = append(out, step{words("R reports on lane %d", l+1), t, true, ""})
		case !x.reported && (at == PeerDrained && m.has(earlyReport) || at == LocalDrained && m.has(deafReport)):
			t := s.clone()
			t.wires[l].reported = true
			m.report(t, l)
			out = append(out, step{words("R reports on lane %d before its time", l+1), t, true, ""})
		}
	}
	all := s.r.arrived == 1<<(m.messages*m.parts)-1
	if m.closes && (all || m.has(earlyBye) && s.r.granted == m.messages) {
		t := s.clone()
		t.r.closed = true
		t.toS = append(t.toS, message{kind: bye})
		out = append(out, step{words("R closes the connection"), t, true, ""})
	}
	return out
}

// grants is rule 3: grants are repeated in order, and before new ones.
func (m model) grants(s *state, out []step) []step {
	waiting := false
	for q := range s.r.granted {
		slot := uint8(m.slot(q))
		if !s.r.grants.Waits(slot) || m.outstanding(s, m.slot(q)) >= 0 && m.outstanding(s, m.slot(q)) != q {
			continue
		}
		if m.outstanding(s, m.slot(q)) < 0 {
			t := s.clone()
			t.r.grants.Drop(slot)
			out = append(out, step{words("R need not repeat the grant of %d", q+1), t, true, ""})
			waiting = true
			break
		}
		for l := range m.lanes {
			moves := s.r.grants.MayMove(slot, &s.r.Lanes, m.isPolled(int(s.r.grants.Lane(slot)))) || m.has(elsewhere|allAgain|earlyRepeat)
			if s.r.At(uint8(l)) != InService || !moves && int(s.r.grants.Lane(slot)) != l {
				continue
			}
			t := s.clone()
			t.r.grants.Repeated(slot, uint8(l))
			if m.has(uncounted) {
				t.r.grants.inFlight[slot] = 1
			}
			if m.isPolled(l) {
				t.r.grants.Landed(slot) // or is ignored
			}
			m.carryGrant(t, q, l, again)
			out = append(out, step{words("R repeats the grant of %d over lane %d", q+1, l+1), t, true, ""})
			waiting = true
		}
		if waiting {
			break
		}
	}
	if q := s.r.granted; m.mayGrant(s, q) {
		for l := range m.lanes {
			if s.r.At(uint8(l)) == InService {
				t := s.clone()
				if slot := uint8(m.slot(q)); s.r.grants.Waits(slot) { // only by mistake
					t.r.grants.Drop(slot)
					t.r.overtaken |= 1 << (q - m.window)
				}
				t.r.granted++
				t.r.grants.Sent(uint8(m.slot(q)), uint8(l))
				m.carryGrant(t, q, l, 0)
				out = append(out, step{words("R grants %d over lane %d", q+1, l+1), t, true, ""})
			}
		}
	}
	for q := range m.messages {
		for l := range m.lanes {
			if s.r.overtaken.has(q) && s.r.At(uint8(l)) == InService {
				t := s.clone()
				t.r.overtaken &^= 1 << q
				m.carryGrant(t, q, l, again)
				out = append(out, step{words("R repeats the grant of %d over lane %d, after a new one", q+1, l+1), t, true, ""})
			}
		}
	}
	if s.rekeyed < m.rekeyed && len(m.incomplete(s)) > 0 {
		t := s.clone()
		t.rekeyed++
		for _, v := range m.incomplete(s) {
			t.r.grants.Repeat(v.Slot)
		}
		out = append(out, step{words("R's memory has a new key"), t, false, ""})
	}
	return out
}

// mayGrant reports whether receive q may be granted.
func (m model) mayGrant(s *state, q int) bool {
	if q == m.messages || m.outstanding(s, m.slot(q)) >= 0 {
		return false
	}
	g, slot := &s.r.grants, uint8(m.slot(q))
	switch {
	case m.has(untracked):
		return !g.Waiting()
	case m.has(overtaking):
		return g.inFlight[slot] == 0
	}
	return g.MayGrant(slot)
}

// carryGrant puts a grant on its way over a lane.
func (m model) carryGrant(s *state, q, l, mark int) {
	if m.open(s, atSender, l) {
		s.wires[l].grants.push(q + 1 + mark)
	}
}

// incomplete returns the receives that are not complete.
func (m model) incomplete(s *state) (all []Receive) {
	for q := range s.r.granted {
		if m.all(q)&^s.r.arrived != 0 {
			all = append(all, Receive{Slot: uint8(m.slot(q)), Proved: m.all(q)&s.r.arrived != 0})
		}
	}
	return all
}

// poll counts the part that arrived first over a lane, as its immediate says.
func (m model) poll(s *state, l int) property {
	v := s.wires[l].landed.pop()
	p := v&^again - 1
	q := p / m.parts
	switch r := m.outstanding(s, m.slot(q)); {
	case r < 0:
		return noReceive
	case r != q:
		return otherReceive
	case s.r.arrived.has(p):
		return countedTwice
	}
	if v&again != 0 {
		ok, due := s.r.allowance.Use()
		if !ok {
			return tooManyAgain
		}
		if due {
			s.toS = append(s.toS, message{kind: moreCredit, more: s.r.allowance.Renew()})
		}
	}
	s.r.arrived |= 1 << p
	return ""
}

// report is rule 2.
func (m model) report(s *state, l int) {
	v := message{kind: report, lane: uint8(l), epoch: s.wires[l].epoch, more: s.r.allowance.Renew()}
	for q := range s.r.granted {
		if m.all(q)&^s.r.arrived != 0 {
			v.named |= 1 << q
			v.arrived |= s.r.arrived & m.all(q)
		}
	}
	s.toS = append(s.toS, v)
	s.r.grants.Settle(uint8(l), m.incomplete(s))
	if m.has(allAgain) {
		for _, r := range m.incomplete(s) {
			if !r.Proved {
				s.r.grants.Repeat(r.Slot)
			}
		}
	}
}
