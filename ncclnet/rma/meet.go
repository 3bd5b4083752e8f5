package rma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

const (
	// meetWait is how long Connect waits for the other ranks. All call it after they have exchanged their handles, so that only a
	// rank that has died, or is very busy, needs longer.
	meetWait = 2 * time.Minute

	// How long Connect pauses between two looks: briefly at first, and then the longer it has waited.
	minMeetPause = 100 * time.Microsecond
	maxMeetPause = 10 * time.Millisecond
)

// An introduction is the first message of a connection, by which the receiver learns which rank has dialled. Integers are little
// endian:
//
//	0  magic 4
//	4  rank 4: of the sender
//	8  ranks 4: of the group
//	12 zeros 4
const (
	introductionSize  = 16
	introductionMagic = 0x616d7231
	introductionTag   = 0x726d
)

// A meeting is the connecting of a group. It owns all its connections until they belong to a peer.
type meeting struct {
	g     *Group
	mem   *ibv.Memory // of introductions: one that is sent, and then one for each that is received
	calls []outCall   // by rank; that of this rank is not used
	taken []inCall    // in the order of their arrival; at most one for each rank
}

// outCall is a connection that this rank dials.
type outCall struct {
	dialing *transport.Dialing
	conn    *conn.Sender // nil: being set up
	region  *lane.Region
	sent    *conn.Request // the introduction
	ready   bool          // the introduction was delivered
}

// inCall is a connection that another rank has dialled.
type inCall struct {
	conn   *conn.Receiver
	region *lane.Region
	recv   *conn.Request // the introduction
	rank   int           // of the dialler; -1: not known yet
}

// meet connects all links. After an error no connection is left open.
func (g *Group) meet(c Config) (err error) {
	m := &meeting{g: g, calls: make([]outCall, len(g.links))}
	if m.mem, err = ibv.Alloc((1 + len(g.links)) * introductionSize); err != nil {
		return err
	}
	b := m.mem.Bytes()
	binary.LittleEndian.PutUint32(b[0:], introductionMagic)
	binary.LittleEndian.PutUint32(b[4:], uint32(g.rank))
	binary.LittleEndian.PutUint32(b[8:], uint32(len(g.links)))
	g.links[g.rank].peer = g.space.Self()
	for r, h := range c.Handles {
		if r != g.rank {
			m.calls[r].dialing = c.Transport.Dial(h)
		}
	}
	for begun := time.Now(); ; {
		all, err := m.step(c.Listener)
		waited := time.Since(begun)
		if err == nil && !all && waited > meetWait {
			err = m.late(c.Handles)
		}
		if all || err != nil {
			return errors.Join(err, m.close())
		}
		g.clock.Sleep(min(max(waited/16, minMeetPause), maxMeetPause))
	}
}

// step continues all connections. It reports whether all links are connected.
func (m *meeting) step(l *transport.Listener) (all bool, err error) {
	for {
		r, err := l.Accept()
		if err != nil {
			return false, err
		}
		if r == nil {
			break
		}
		if len(m.taken) == len(m.calls)-1 {
			return false, errors.Join(fmt.Errorf("%w: more than %d ranks have connected to rank %d", fault.ErrProtocol, len(m.taken), m.g.rank), r.Close())
		}
		m.taken = append(m.taken, inCall{conn: r, rank: -1})
	}
	for i := range m.taken {
		if err := m.greeted(i); err != nil {
			return false, err
		}
	}
	all = true
	for r := range m.calls {
		l := &m.g.links[r]
		if l.peer != nil {
			continue
		}
		if err := m.greet(r); err != nil {
			return false, fmt.Errorf("rank %d: %w", r, err)
		}
		if err := m.join(r); err != nil {
			return false, fmt.Errorf("rank %d: %w", r, err)
		}
		all = all && l.peer != nil
	}
	return all, nil
}

// greet continues the connection to a rank, up to the delivery of the introduction.
func (m *meeting) greet(r int) (err error) {
	c := &m.calls[r]
	if c.conn == nil {
		if c.conn, err = c.dialing.Poll(); c.conn == nil || err != nil {
			return err
		}
		if c.region, err = c.conn.RegMR(lane.HostMemory, m.mem.Addr(), introductionSize); err != nil {
			return err
		}
	}
	if c.sent == nil && !c.ready {
		if c.sent, err = c.conn.Isend(m.mem.Addr(), introductionSize, introductionTag, c.region); c.sent == nil || err != nil {
			return err
		}
	}
	if !c.ready {
		if c.ready, err = c.sent.Test(nil); !c.ready || err != nil {
			return err
		}
		c.sent = nil
		return c.conn.DeregMR(c.region)
	}
	return nil
}

// greeted continues a connection that was accepted, up to the arrival of the introduction.
func (m *meeting) greeted(i int) (err error) {
	c := &m.taken[i]
	if c.rank >= 0 {
		return nil
	}
	slot := (1 + i) * introductionSize
	if c.region == nil {
		if c.region, err = c.conn.RegMR(lane.HostMemory, m.mem.Addr()+uintptr(slot), introductionSize); err != nil {
			return err
		}
	}
	if c.recv == nil {
		bufs := []conn.Buffer{{Addr: m.mem.Addr() + uintptr(slot), Size: introductionSize, Tag: introductionTag, Region: c.region}}
		if c.recv, err = c.conn.Irecv(bufs); c.recv == nil || err != nil {
			return err
		}
	}
	var sizes conn.Sizes
	if done, err := c.recv.Test(&sizes); !done || err != nil {
		return err
	}
	if c.rank, err = m.introduced(c.conn, m.mem.Bytes()[slot:][:sizes[0]]); err != nil {
		return err
	}
	return c.conn.DeregMR(c.region)
}

// introduced returns the rank that an introduction names.
func (m *meeting) introduced(c *conn.Receiver, b []byte) (rank int, err error) {
	if len(b) != introductionSize || binary.LittleEndian.Uint32(b) != introductionMagic {
		return -1, fmt.Errorf("%w: %v: the first message is no introduction: % x", fault.ErrProtocol, c, b)
	}
	rank, ranks := int(binary.LittleEndian.Uint32(b[4:])), int(binary.LittleEndian.Uint32(b[8:]))
	switch {
	case ranks != len(m.calls):
		return -1, fmt.Errorf("%w: %v: rank %d of a group of %d ranks connected to rank %d of a group of %d", fault.ErrProtocol, c, rank, ranks, m.g.rank, len(m.calls))
	case rank >= ranks || rank == m.g.rank:
		return -1, fmt.Errorf("%w: %v: rank %d of %d connected to rank %d", fault.ErrProtocol, c, rank, ranks, m.g.rank)
	}
	for i := range m.taken {
		if m.taken[i].rank == rank {
			return -1, fmt.Errorf("%w: %v: rank %d connected to rank %d twice", fault.ErrProtocol, c, rank, m.g.rank)
		}
	}
	return rank, nil
}

// join makes a peer of the connections with a rank, once both are ready.
func (m *meeting) join(r int) error {
	c := &m.calls[r]
	if !c.ready {
		return nil
	}
	for i := range m.taken {
		t := &m.taken[i]
		if t.rank != r {
			continue
		}
		out, in := c.conn, t.conn
		c.conn, t.conn = nil, nil // they are the space's, even after an error
		p, err := m.g.space.Connect(out, in)
		if err != nil {
			return err
		}
		m.g.links[r].peer = p
	}
	return nil
}

// late returns the error of ranks that are missing after meetWait.
func (m *meeting) late(handles []handshake.Handle) error {
	var missing []string
	for r := range m.calls {
		if m.g.links[r].peer != nil {
			continue
		}
		from := "has not connected to this one"
		for i := range m.taken {
			if m.taken[i].rank == r {
				from = "has connected to this one"
			}
		}
		to := "is not reached"
		if m.calls[r].ready {
			to = "is reached"
		}
		missing = append(missing, fmt.Sprintf("rank %d at %v %s and %s", r, handles[r].Addrs, to, from))
	}
	return fmt.Errorf("%w: rank %d of %d waited %.0f s for the others: %s", fault.ErrUnreachable, m.g.rank, len(m.calls), meetWait.Seconds(), strings.Join(missing, "; "))
}

// close closes what does not belong to a peer, and frees the memory.
func (m *meeting) close() error {
	var errs []error
	for r := range m.calls {
		c := &m.calls[r]
		if c.dialing != nil {
			errs = append(errs, c.dialing.Close())
		}
		if c.conn != nil {
			errs = append(errs, c.conn.Close())
		}
	}
	for i := range m.taken {
		if c := m.taken[i].conn; c != nil {
			errs = append(errs, c.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err // a device may still use the memory
	}
	return m.mem.Free()
}
