package conn

import (
	"math/bits"

	"ncclmesh/transport/lane"
)

// A brief signal is a signal without bytes. Its immediates have a number, which its receive tells the receiver, and for
// which both sides know what it stands for. Since no part of it writes into the granted buffer, a part can carry the
// bytes of a put instead, into a window: put and signal then are one write for each lane, in place of two.
//
// The account is that of a put and of a signal behind it: parts of both are posted, and lost, together. What is lost is
// sent again apart, the put's part before the signal's, as if they had been two writes. Only one thing is different: a
// part that a signal carries has no completion of its own. That of the signal's part on the same lane shows that it was
// delivered. If the lane fails, the receiver's report shows the same, as for any part of a put.

// BriefSignal sends a brief signal to the receive that was granted for tag. With a put, which may be nil, it begins
// that put too, as Put does. When the receive is done, the bytes of that put and of all earlier ones are in the
// receiver's memory. It returns false without an error if that cannot begin now, or not on these lanes; the caller then
// calls Put and Signal. ProgressPuts reports the ends of both, with the owners' numbers.
//
// The receiver must have called Standing.
func (s *Sender) BriefSignal(number uint8, tag int32, owner uint64, b *Put) (begun bool, err error) {
	if !s.TryLock() {
		return false, nil
	}
	defer s.Unlock()
	if b == nil {
		err = s.checkUsable("signal")
	} else {
		err = s.checkPut(b)
	}
	if err != nil || s.traits.Polled { // carriers that place parts know by the immediate where
		return false, err
	}
	e, err := s.grantForSignal(tag, 0)
	if e == nil {
		return false, err
	}
	n, puts := 0, uint32(0)
	if b != nil {
		if n, puts = s.putLanes(b); n == 0 {
			s.poll()
			return false, s.Ended()
		}
	}
	mask, ok := s.signalLanes(0, e, puts)
	if !ok {
		s.poll()
		return false, s.Ended()
	}
	s.postBrief(mask, puts, n, number, e, owner, b)
	return true, nil
}

// putLanes cuts a put, and returns the number of its parts and the lanes that have room for them, as a mask. It returns
// 0 if the put cannot begin.
func (s *Sender) putLanes(b *Put) (n int, mask uint32) {
	t := s.puts
	if t.all[t.next].active {
		return 0, 0
	}
	n, which := s.cut(b.Size, &b.Window.grant)
	if n == 0 || !s.hasRoom(which) {
		return 0, 0
	}
	for i := range s.lanes {
		if s.split[i] > 0 {
			mask |= 1 << i
		}
	}
	return n, mask
}

// postBrief posts a brief signal with a part on each lane of a mask. Those on the lanes of puts carry the n parts of a
// put, as cut has divided it.
func (s *Sender) postBrief(mask, puts uint32, n int, number uint8, e *lane.Grant, owner uint64, b *Put) {
	t := s.puts
	var carried *put
	if puts != 0 {
		carried = s.startPut(b, n)
		carried.carried = carried.remaining
	}
	req, x := s.startSignal(mask, e, 0, 0, nil, owner)
	x.brief, x.number = true, number
	if carried != nil {
		x.carries, x.put, x.putPost = true, uint16(carried.index), carried.posted
	}
	q, p := req.sent, &t.part
	p.Request, p.Window = req.index, 0
	p.Imm.Slot, p.Imm.Sub, p.Imm.Part, p.Imm.Last, p.Imm.Writes, p.Imm.Again = lane.SlotOf(e.Seq), e.Sub, 0, q.Last, 0, false
	p.Imm.Brief, p.Imm.Number = true, number
	offset, j := uint64(0), 0
	for i, l := range s.lanes {
		bit := uint32(1) << i
		if mask&bit == 0 {
			continue
		}
		if puts&bit == 0 {
			p.Grant, p.Region, p.Local, p.Offset, p.Size, p.Inline = e, nil, 0, 0, 0, false
		} else {
			p.Grant, p.Region, p.Local, p.Offset = &b.Window.grant, b.Region, b.Addr+uintptr(offset), b.Offset+offset
			p.Size, p.Inline = s.split[i], b.Region.Kind == lane.HostMemory
			carried.lanes[j], carried.sizes[j], carried.numbers[j] = l.Index, uint32(p.Size), carried.posted
			offset += uint64(p.Size)
			j++
			b.Window.parts++
			t.inFlight[l.Index]++
		}
		q.Lanes[p.Imm.Part], q.sizes[p.Imm.Part] = uint8(i), 0
		s.sendPart(l, p)
		p.Imm.Part++
	}
	t.touched = 0
	s.consumeGrant(e)
	s.countSent(0)
}

// carriedDelivered handles the delivery of a part of a brief signal over a lane: the part of a put that it carried is
// delivered too.
func (s outgoing) carriedDelivered(l *lane.Lane, x *signal) {
	p := &s.puts.all[x.put]
	if p.posted != x.putPost { // the parts were delivered, or lost and sent again apart, and the account has another put
		x.carries = false
		return
	}
	for left := p.carried; left != 0; left &= left - 1 {
		if k := bits.TrailingZeros32(left); p.lanes[k] == l.Index {
			p.carried &^= 1 << k
			s.putDelivered(l, int(x.put), k)
			return
		}
	}
}

// briefOf returns whether a request is a brief signal, and its number.
func (s *Sender) briefOf(req *Request) (brief bool, number uint8) {
	if s.puts == nil || req.isEager() || !s.puts.signals[req.index].active {
		return false, 0
	}
	x := &s.puts.signals[req.index]
	return x.brief, x.number
}
