package handshake

// Limits of a Report.
const (
	MaxReceives = 256 // receives outstanding
	MaxSubs     = 8   // messages of a receive
)

// A Report of as many receives as there can be fits.
const _ = uint(MaxBody - (4 + 1 + 4 + 2 + 8 + 2 + 2 + MaxReceives*(8+1+4*MaxSubs)))

// Report is the receiver's word on what has arrived when a lane is down at both ends: the parts
// that the lane carried and that are not in it did not arrive, and can be sent again.
type Report struct {
	Conn  uint32
	Lane  uint8
	Epoch uint32
	Again uint16 // how many more parts may be sent again, over all lanes
	Eager uint64 // all eager messages up to this number have arrived
	Ahead uint16 // and of those that follow it a bit for each, the lowest for the next
	// Receives are those outstanding, by sequence. One that has been granted and is not among
	// them is complete.
	Receives []Received
}

// Received is what has arrived of a receive.
type Received struct {
	Seq   uint64
	Parts []uint32 // of each of its messages a bit for each part, and all bits once it is complete
}

func (*Report) Type() Type { return TypeReport }

func (m *Report) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.u32(m.Conn)
	w.atMost("lane index", m.Lane, MaxLanes-1)
	w.u32(m.Epoch)
	w.u16(m.Again)
	w.u64(m.Eager)
	w.u16(m.Ahead)
	if len(m.Receives) > MaxReceives {
		w.fail("%d receives, at most %d are allowed", len(m.Receives), MaxReceives)
	}
	w.u16(uint16(len(m.Receives)))
	for i := range m.Receives {
		v := &m.Receives[i]
		w.u64(v.Seq)
		w.count("messages of a receive", len(v.Parts), MaxSubs)
		for _, p := range v.Parts {
			w.u32(p)
		}
	}
	return w.done("Report")
}

func (m *Report) decode(r *reader) {
	*m = Report{Conn: r.u32(), Lane: r.atMost("lane index", MaxLanes-1), Epoch: r.u32(), Again: r.u16(), Eager: r.u64(), Ahead: r.u16()}
	n := r.u16()
	if n > MaxReceives {
		r.fail("%d receives, at most %d are allowed", n, MaxReceives)
	}
	for range n {
		v := Received{Seq: r.u64()}
		for range r.atMost("number of messages of a receive", MaxSubs) {
			v.Parts = append(v.Parts, r.u32())
		}
		if r.err != nil {
			return
		}
		if k := len(m.Receives); k > 0 && m.Receives[k-1].Seq >= v.Seq {
			r.fail("receive %d follows receive %d", v.Seq, m.Receives[k-1].Seq)
			return
		}
		m.Receives = append(m.Receives, v)
	}
}
