package failover

import "math/bits"

// sends is what the sender does of itself: it sends messages, sends lost parts again, and settles lanes. Any message may be next, as
// tags have it, whose grant is there and those of all messages before it that are not sent.
func (m model) sends(s *state, out []step) []step {
	for q := range m.messages {
		if s.s.sent.has(q) {
			continue
		}
		if int(s.s.ring[m.slot(q)]) != q+1 {
			break
		}
		out = m.send(s, q, out)
	}
	for q := range m.messages {
		for lost := s.s.parts[q].Lost; lost != 0; lost &= lost - 1 {
			k := bits.TrailingZeros32(lost)
			if m.has(chargedTwice) {
				s = s.clone()
				s.s.parts[q].charged &^= 1 << k
			}
			if !m.has(heedless) && !s.s.credit.MaySend(&s.s.parts[q], k) {
				continue
			}
			for l := range m.lanes {
				if s.s.At(uint8(l)) == InService {
					t := s.clone()
					bad := m.sendAgain(t, q, k, l)
					out = append(out, step{m.part("S sends part %d of %d again over lane %d", q*m.parts+k, l), t, true, bad})
				}
			}
		}
	}
	for l := range m.lanes {
		out = m.settles(s, l, out)
	}
	return out
}

// send posts the parts of a message, over every choice of lanes.
func (m model) send(s *state, q int, out []step) []step {
	choose := func(t *state, k int, then func(*state, int)) {
		for l := range m.lanes {
			if t.s.At(uint8(l)) == InService {
				u := t.clone()
				u.s.parts[q].Lanes[k] = uint8(l)
				m.post(u, q*m.parts+k, l, 0)
				then(u, l)
			}
		}
	}
	t := s.clone()
	t.s.sent |= 1 << q
	t.s.parts[q].Begin(m.parts)
	t.s.left[q] = 1<<m.parts - 1
	choose(t, 0, func(t *state, first int) {
		if m.parts == 1 {
			out = append(out, step{words("S sends %d over lane %d", q+1, first+1), t, true, ""})
			return
		}
		choose(t, 1, func(t *state, second int) {
			out = append(out, step{words("S sends %d over lanes %d and %d", q+1, first+1, second+1), t, true, ""})
		})
	})
	return out
}

func (m model) post(s *state, p, l, mark int) {
	if m.open(s, atReceiver, l) {
		s.wires[l].parts.push(p + 1 + mark)
	}
}

// sendAgain sends a lost part again. The sender reads its grant in the ring once more.
func (m model) sendAgain(s *state, q, k, l int) property {
	if int(s.s.ring[m.slot(q)]) != q+1 {
		return grantLost
	}
	s.s.credit.Sent(&s.s.parts[q], k, uint8(l))
	s.s.credit.left = max(s.s.credit.left, 0) // below 0 only by mistake
	m.post(s, q*m.parts+k, l, again)
	n := 0
	for i := range m.lanes {
		for _, way := range []queue{s.wires[i].parts, s.wires[i].landed} {
			for way != 0 {
				n += way.pop() & again / again
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
	s.wires[l].acks &^= 1 << p
	q, k := p/m.parts, p%m.parts
	if parts := &s.s.parts[q]; int(parts.Lanes[k]) != l || s.s.left[q]&(1<<k) == 0 {
		return "" // only by mistake is it another lane's by now
	}
	return m.finish(s, q, 1<<k)
}

// finish marks parts as delivered, and looks at their message if none is left.
func (m model) finish(s *state, q int, parts uint32) property {
	s.s.left[q] &^= parts
	s.s.parts[q].Lost &^= parts // not lost by now, except by mistake
	if parts == 0 || s.s.left[q] != 0 {
		return ""
	}
	there, read := s.r.arrived, set(0)
	for l := range m.lanes {
		x := &s.wires[l]
		for way := x.landed; way != 0; {
			there |= 1 << (way.pop()&^again - 1)
		}
		for way := x.parts; way != 0 && m.open(s, atSender, l); {
			read |= 1 << (way.pop()&^again - 1)
		}
	}
	switch {
	case m.all(q)&^there != 0:
		return sentTooEarly
	case m.all(q)&read != 0:
		return readTooLate
	}
	return ""
}

// settles is rules 4 and 6: the sender settles a lane once it has the Report, or the receiver has closed.
func (m model) settles(s *state, l int, out []step) []step {
	x, held := &s.wires[l], s.s.reports[l]
	early := s.s.At(uint8(l)) == BothDrained && m.has(earlyVacant)
	switch {
	case s.s.closed:
		t := s.clone()
		if t.s.Step(uint8(l), x.epoch, PeerClosed).Has(Settle) {
			t.s.reports[l] = message{}
			bad := m.settle(t, l, message{})
			out = append(out, step{words("S settles lane %d, because R has closed", l+1), t, true, bad})
		}
	case held.kind == report || early:
		t := s.clone()
		if t.s.Step(uint8(l), x.epoch, Reported).Has(Settle) {
			t.s.reports[l] = message{}
			if early && held.kind != report {
				out = append(out, step{words("S has done with lane %d before the Report", l+1), t, true, ""})
				break
			}
			bad := m.settle(t, l, held)
			out = append(out, step{words("S settles lane %d by the Report", l+1), t, true, bad})
		}
	}
	return out
}

// settle settles the parts of all messages that went last over a lane. Package conn does so for messages that are not done; here the
// acknowledged parts of all must have arrived.
func (m model) settle(s *state, l int, v message) property {
	s.s.credit.Add(v.more)
	for q := range m.messages {
		if !s.s.sent.has(q) {
			continue
		}
		named, arrived := v.named.has(q), uint32(v.arrived>>(q*m.parts))&(1<<m.parts-1)
		left := s.s.left[q]
		if m.has(resendDone) && !named {
			named, left, arrived = true, s.s.left[q], ^s.s.left[q]
		}
		if m.has(ackedAnywhere) && named && ^left&^arrived&(1<<m.parts-1) != 0 {
			return ackedMissing
		}
		delivered, ok := s.s.parts[q].Settle(uint8(l), left, named, arrived)
		if !ok {
			return ackedMissing
		}
		if bad := m.finish(s, q, delivered); bad != "" {
			return bad
		}
	}
	return ""
}

// hears takes the next message of the session at either side.
func (m model) hears(s *state, out []step) []step {
	if len(s.toR) > 0 {
		t := s.clone()
		v := t.toR[0]
		if t.toR = t.toR[1:]; !t.r.closed {
			m.stopOf(t, atReceiver, v)
		}
		out = append(out, step{words("R hears LaneDown of lane %d", int(v.lane)+1), t, true, ""})
	}
	if len(s.toS) == 0 {
		return out
	}
	t := s.clone()
	v := t.toS[0]
	t.toS = t.toS[1:]
	switch v.kind {
	case laneDown:
		m.stopOf(t, atSender, v)
		out = append(out, step{words("S hears LaneDown of lane %d", int(v.lane)+1), t, true, ""})
	case moreCredit:
		t.s.credit.Add(v.more)
		out = append(out, step{words("S may send %d more parts again", v.more), t, true, ""})
	case bye:
		t.s.closed = true
		out = append(out, step{words("S hears that R has closed"), t, true, ""})
	case report:
		if t.s.At(v.lane) == Vacant || t.wires[v.lane].epoch != v.epoch {
			t.s.credit.Add(v.more) // as of a Report that is about no lane
		} else {
			t.s.reports[v.lane] = v
		}
		out = append(out, step{words("S hears the Report on lane %d", int(v.lane)+1), t, true, ""})
	}
	return out
}

// stopOf is what the peer's LaneDown causes.
func (m model) stopOf(s *state, w side, v message) {
	if s.wires[v.lane].epoch == v.epoch {
		m.stop(s, w, int(v.lane), PeerDown)
	}
}
