package failover

// sends is what the sender does of itself: messages, and parts sent again. Any message may be
// next, as tags have it, whose grant is there and those of all before it that are not sent.
func (m model) sends(s *state, out []step) []step {
	for q := range m.messages {
		if s.sent.has(q) {
			continue
		}
		if int(s.ring[m.slot(q)]) != q+1 {
			break
		}
		out = m.send(s, q, out)
	}
	for p := range m.messages * m.parts {
		if !s.pending.has(p) || !m.mayRepeat(s, p) {
			continue
		}
		for l := range m.lanes {
			if s.lanes[l].s == 0 {
				t := *s
				bad := m.sendAgain(&t, p, l)
				out = append(out, step{m.part("S sends part %d of %d again over lane %d", p, l), t, true, bad})
			}
		}
	}
	return out
}

// send posts the parts of a message, over every choice of lanes.
func (m model) send(s *state, q int, out []step) []step {
	for first := range m.lanes {
		if s.lanes[first].s != 0 {
			continue
		}
		t := *s
		t.sent |= 1 << q
		m.post(&t, q*m.parts, first, 0)
		if m.parts == 1 {
			out = append(out, step{words("S sends %d over lane %d", q+1, first+1), t, true, ""})
			continue
		}
		for second := range m.lanes {
			if s.lanes[second].s == 0 {
				u := t
				m.post(&u, q*m.parts+1, second, 0)
				out = append(out, step{words("S sends %d over lanes %d and %d", q+1, first+1, second+1), u, true, ""})
			}
		}
	}
	return out
}

func (m model) post(s *state, p, l, mark int) {
	x := &s.lanes[l]
	x.posted |= 1 << p
	if x.r&stopped == 0 {
		x.parts.push(p + 1 + mark)
	}
}

// mayRepeat is rule 5 at the sender. The leave that a part has got stays with it until
// it arrives, however often it is lost.
func (m model) mayRepeat(s *state, p int) bool {
	return m.again == 0 || s.leave > 0 || s.charged.has(p) && !m.has(chargedTwice) || m.has(heedless)
}

func (m model) sendAgain(s *state, p, l int) property {
	if m.again > 0 && s.leave > 0 && (!s.charged.has(p) || m.has(chargedTwice)) {
		s.leave--
		s.charged |= 1 << p
	}
	s.pending &^= 1 << p
	m.post(s, p, l, marked)
	n := 0
	for i := range m.lanes {
		for q := s.lanes[i].parts; q != 0; {
			if q.pop()&marked != 0 {
				n++
			}
		}
	}
	if m.again > 0 && n > m.again {
		return tooManyAgain
	}
	return ""
}

// acknowledge is the success completion of a part.
func (m model) acknowledge(s *state, l, p int) property {
	x := &s.lanes[l]
	x.acks &^= 1 << p
	if !x.posted.has(p) {
		return ""
	}
	x.posted &^= 1 << p
	if !s.arrived.has(p) {
		x.acked |= 1 << p
	}
	return m.finish(s, p)
}

// finish marks a part done, and looks at its message when it was the last.
func (m model) finish(s *state, p int) property {
	s.done |= 1 << p
	s.charged &^= 1 << p
	q := p / m.parts
	if m.all(q)&^s.done != 0 {
		return ""
	}
	there := s.arrived
	for i := range m.lanes {
		for w := s.lanes[i].landed; w != 0; {
			there |= 1 << (w.pop()&^marked - 1)
		}
	}
	if m.all(q)&^there != 0 {
		return sentTooEarly
	}
	return ""
}

// hears is what comes out of the control channel.
func (m model) hears(s *state, out []step) []step {
	if s.toR != 0 {
		t := *s
		l := t.toR.pop() - 1
		t.lanes[l].r |= told
		out = append(out, step{words("R hears LaneDown of lane %d", l+1), t, true, ""})
	}
	if s.waiting == 0 {
		return out
	}
	t := *s
	switch c := t.hear(); c.kind {
	case laneDown:
		t.lanes[c.lane].s |= told
		out = append(out, step{words("S hears LaneDown of lane %d", int(c.lane)+1), t, true, ""})
	case moreAgain:
		t.leave += c.more
		out = append(out, step{words("S may send %d more parts again", int(c.more)), t, true, ""})
	case report:
		if s.lanes[c.lane].s&(said|stopped) == said|stopped {
			bad := m.settle(&t, c)
			out = append(out, step{words("S hears the Report on lane %d", int(c.lane)+1), t, true, bad})
		}
	}
	return out
}

// settle is rule 4.
func (m model) settle(s *state, c control) (bad property) {
	x := &s.lanes[c.lane]
	s.leave += c.more
	posted, acked := x.posted, x.acked
	x.posted, x.acked = 0, 0
	if m.has(ackedAnywhere) {
		for i := range m.lanes {
			acked |= s.lanes[i].acked
		}
	}
	x.s |= free
	for p := range m.messages * m.parts {
		named, there := c.named.has(p/m.parts), c.arrived.has(p)
		switch {
		case acked.has(p) && named && !there:
			return ackedMissing
		case !posted.has(p):
		case !named && !m.has(resendDone), named && there:
			if bad = m.finish(s, p); bad != "" {
				return bad
			}
		default:
			s.pending |= 1 << p
		}
	}
	return ""
}
