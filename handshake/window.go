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

func (m *Window) fields(c *codec) {
	c.u32(&m.Conn)
	c.u32(&m.ID)
	c.atMost("kind of memory", &m.Kind, maxMemoryKind)
	c.u64(&m.Base)
	c.u64(&m.Size)
	list(c, "keys of a window", &m.RKeys, MaxDomains, c.u32)
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

func (m *WindowEnd) fields(c *codec) {
	c.u32(&m.Conn)
	c.u32(&m.ID)
}
