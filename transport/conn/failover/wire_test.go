package failover

// travels is what a lane carries, arriving and coming back. What is on its way over a lane that has failed may be lost.
func (m model) travels(s *state, l int, out []step) []step {
	x := &s.wires[l]
	add := func(mv move, t *state, bad property) {
		out = append(out, step{mv, t, !x.broken, bad})
	}
	if x.grants != 0 {
		t := s.clone()
		bad := m.landGrant(t, l)
		add(words("the grant of %d lands over lane %d", x.grants.head()&^again, l+1), t, bad)
	}
	if x.parts != 0 {
		t := s.clone()
		v := t.wires[l].parts.pop()
		t.wires[l].landed.push(v)
		p := v&^again - 1
		if m.open(s, atSender, l) {
			t.wires[l].acks |= 1 << p
		}
		var bad property
		if m.all(p/m.parts)&^s.r.arrived == 0 {
			bad = givenBack
		}
		add(m.part("part %d of %d arrives over lane %d", p, l), t, bad)
	}
	for p := range m.messages * m.parts {
		if x.acks.has(p) {
			t := s.clone()
			bad := m.acknowledge(t, l, p)
			add(m.part("S learns that part %d of %d was delivered over lane %d", p, l), t, bad)
		}
	}
	if x.confirms != 0 {
		t := s.clone()
		q := t.wires[l].confirms.pop() - 1
		t.r.grants.Landed(uint8(m.slot(q)))
		add(words("R learns that the repeated grant of %d has landed over lane %d", q+1, l+1), t, "")
	}
	return out
}

// open reports whether a side's end of a lane is not drained, so that something may arrive there.
func (m model) open(s *state, w side, l int) bool {
	switch s.end(w).At(uint8(l)) {
	case InService, Draining, PeerDrained:
		return true
	}
	return false
}

// landGrant puts the first grant on its way over a lane into the ring.
func (m model) landGrant(s *state, l int) property {
	x := &s.wires[l]
	v := x.grants.pop()
	q := v&^again - 1
	if m.isPolled(l) {
		return m.takeGrant(s, q)
	}
	if v&again != 0 && m.open(s, atReceiver, l) {
		x.confirms.push(q + 1)
	}
	slot := &s.s.ring[m.slot(q)]
	before := int(*slot) - 1
	*slot = uint8(q + 1)
	if before > q && m.unfinished(s).has(before) {
		return grantLost
	}
	return ""
}

// takeGrant is how the sender's processor puts a grant that came over a polled lane into the ring. A grant that comes too late is
// ignored, if the receiver had a reason to repeat it, and else a breach of the protocol.
func (m model) takeGrant(s *state, q int) property {
	head := 0
	for s.s.sent.has(head) {
		head++
	}
	slot := &s.s.ring[m.slot(q)]
	switch late := q < head || int(*slot) >= q+1; {
	case late && (s.s.failed || s.rekeyed > 0 && !m.has(unexpected)):
		return ""
	case late, q >= head+m.window:
		return outOfOrder
	}
	*slot = uint8(q + 1)
	return ""
}

// fails is how a lane fails, is drained, and is replaced.
func (m model) fails(s *state, l int, out []step) []step {
	x := &s.wires[l]
	index := uint8(l)
	for _, w := range []side{atSender, atReceiver} {
		at := s.end(w).At(index)
		if w == atReceiver && s.r.closed {
			continue // it does nothing more
		}
		if fresh := !x.broken && s.failures < m.failures; at == InService && (fresh || x.broken) {
			t := s.clone()
			if fresh {
				t.wires[l].broken = true
				t.failures++
			}
			m.stop(t, w, l, Failed)
			adapter := w == atSender && s.s.closed // R says no more, but S's own adapter gets no acknowledgements
			out = append(out, step{words([]string{"S notices that lane %d has failed", "R notices that lane %d has failed"}[w], l+1), t, adapter && x.broken, ""})
		}
		if at == Draining || at == PeerDrained {
			t := s.clone()
			bad := m.drain(t, w, l)
			out = append(out, step{words([]string{"lane %d is drained at S, which sends LaneDown", "lane %d is drained at R, which sends LaneDown"}[w], l+1), t, true, bad})
		}
	}
	if x.broken && s.replaced < m.replaced && s.s.At(index) == Vacant && s.r.At(index) == Vacant && !s.r.closed {
		t := s.clone()
		t.replaced++
		var bad property
		if m.remains(s, l) || !t.join(index, x.epoch+1) {
			bad = usedTooEarly
		}
		needed := m.inService(s, atSender) == 0 || m.inService(s, atReceiver) == 0
		out = append(out, step{words("lane %d is replaced", l+1), t, needed, bad})
	}
	return out
}

// remains reports whether anything of a lane is on its way, or will be taken for its successor's.
func (m model) remains(s *state, l int) bool {
	x := &s.wires[l]
	for _, session := range [][]message{s.toS, s.toR} {
		for _, v := range session {
			if (v.kind == laneDown || v.kind == report) && int(v.lane) == l {
				return true
			}
		}
	}
	for i := range m.window {
		if s.r.grants.inFlight[i] > 0 && int(s.r.grants.Lane(uint8(i))) == l {
			return true
		}
	}
	return x.grants|x.parts|x.landed|x.confirms != 0 || x.acks != 0 || s.s.reports[l].kind != 0
}

// stop is a side's reason not to use a lane any more, or the peer's LaneDown.
func (m model) stop(s *state, w side, l int, e Event) {
	x := &s.wires[l]
	do := s.end(w).Step(uint8(l), x.epoch, e)
	s.s.failed = s.s.failed || w == atSender && do.Has(Stop)
	if do.Has(Stop) && w == atSender && m.has(earlyLaneDown) {
		m.tellDown(s, w, l)
	}
}

// drain ends the draining of a lane at one side.
func (m model) drain(s *state, w side, l int) (bad property) {
	x := &s.wires[l]
	for w == atReceiver && x.landed != 0 && bad == "" {
		bad = m.poll(s, l)
	}
	do := s.end(w).Step(uint8(l), x.epoch, Drained)
	if w == atSender {
		x.grants, x.acks = 0, 0
	} else {
		x.parts, x.confirms = 0, 0
	}
	if do.Has(SendLaneDown) {
		m.tellDown(s, w, l)
	}
	switch {
	case w == atSender && m.has(earlyResend):
		for q := range m.messages {
			if p := &s.s.parts[q]; s.s.sent.has(q) {
				p.Lost |= p.Over(uint8(l)) & s.s.left[q]
			}
		}
	case w == atReceiver && m.has(earlyRepeat):
		s.r.grants.Settle(uint8(l), m.incomplete(s))
	case w == atReceiver && m.has(forgotten):
		for i := range m.window {
			if int(s.r.grants.Lane(uint8(i))) == l {
				s.r.grants.inFlight[i] = 0
			}
		}
	}
	return bad
}

// tellDown sends a side's LaneDown, once.
func (m model) tellDown(s *state, w side, l int) {
	x := &s.wires[l]
	if x.said[w] {
		return
	}
	x.said[w] = true
	v := message{kind: laneDown, lane: uint8(l), epoch: x.epoch}
	if w == atSender {
		s.toR = append(s.toR, v)
	} else {
		s.toS = append(s.toS, v)
	}
}
