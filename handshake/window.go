package handshake

// Window announces memory of the receiver's process into which the sender may put bytes at any time, or new keys of it.
type Window struct {
	Conn  uint32
	ID    uint32 // of the window, from 1; never used again
	Kind  uint8  // of the memory: 0 host memory, 1 GPU memory
	Base  uint64 // address of the memory at the receiver
	Size  uint64
	RKeys []uint32 // by index of the receiver's domain; 0: the window has none there
}

func (*Window) Type() Type { return TypeWindow }

func (m *Window) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.u32(m.Conn)
	w.u32(m.ID)
	w.atMost("kind of memory", m.Kind, maxMemoryKind)
	w.u64(m.Base)
	w.u64(m.Size)
	w.count("keys of a window", len(m.RKeys), MaxDomains)
	for _, k := range m.RKeys {
		w.u32(k)
	}
	return w.done("Window")
}

func (m *Window) decode(r *reader) {
	*m = Window{Conn: r.u32(), ID: r.u32(), Kind: r.atMost("kind of memory", maxMemoryKind), Base: r.u64(), Size: r.u64()}
	for range r.atMost("number of keys of a window", MaxDomains) {
		m.RKeys = append(m.RKeys, r.u32())
	}
}

// maxMemoryKind is the largest kind of memory that a Window may name.
const maxMemoryKind = 1

// WindowEnd says that a window ends. The receiver sends it first: the sender must begin no more puts. The sender
// answers with the same message once none of its puts can reach the window any more.
type WindowEnd struct {
	Conn uint32
	ID   uint32
}

func (*WindowEnd) Type() Type { return TypeWindowEnd }

func (m *WindowEnd) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.u32(m.Conn)
	w.u32(m.ID)
	return w.done("WindowEnd")
}

func (m *WindowEnd) decode(r *reader) { *m = WindowEnd{Conn: r.u32(), ID: r.u32()} }
