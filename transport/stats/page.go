package stats

import (
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ncclmesh/transport/forkfd"
)

// A Page publishes the statistics of one process. Its methods may be called from any goroutine. They hold a
// mutex while they write a few words, and are not called on the data path, which only adds to the counters.
type Page struct {
	*page
	readonly *os.File // nil if the page is private

	mu        sync.Mutex // a leaf
	pathIndex map[Path]int
	conns     slots
	lanes     slots
}

// Open creates a page in shared memory, for other processes to read.
func Open(process Process) (*Page, error) {
	shared, readonly, err := share()
	if err != nil {
		return nil, err
	}
	return newPage(shared, readonly, process), nil
}

// Private creates a page that only this process can read.
func Private(process Process) *Page { return newPage(new(page), nil, process) }

func newPage(memory *page, readonly *os.File, process Process) *Page {
	p := &Page{page: memory, readonly: readonly, pathIndex: map[Path]int{}, conns: slots{room: maxConns}, lanes: slots{room: maxLanes}}
	h := &p.header
	h.version.Store(version)
	h.size.Store(uint64(pageSize))
	for i, t := range p.tables() {
		h.tables[i].offset.Store(t[0])
		h.tables[i].slot.Store(t[1])
		h.tables[i].room.Store(t[2])
	}
	h.pid.Store(uint64(process.PID))
	h.started.Store(uint64(process.Started.UnixNano()))
	h.protocol.Store(uint64(process.Protocol))
	h.kind.Store(uint64(process.Kind))
	storeID(&h.process, process.ID)
	store(h.command[:], process.Command)
	store(h.build[:], process.Build)
	store(h.node[:], process.Node)
	h.magic.Store(magic) // stored last: a page without it is not ready
	return p
}

// Snapshot reads the page.
func (p *Page) Snapshot() (*Snapshot, error) { return snapshot(p.page.memory()) }

// File returns a read-only descriptor of the page, nil if the page is private. The page closes it.
func (p *Page) File() *os.File { return p.readonly }

// Close frees the page's memory for the next page. Later additions to its counters have no effect. It may be
// called again.
func (p *Page) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readonly == nil {
		return nil
	}
	err := forkfd.Close(p.readonly)
	p.readonly = nil
	unshare(p.page)
	return err
}

// change starts a change of more than one word; the function that it returns ends the change.
//
// Preconditions: mu is held until the change has ended.
func (p *Page) change() (done func()) {
	p.header.seq.Add(1)
	return func() { p.header.seq.Add(1) }
}

// SetInterface sets the version of NCCL's interface that the process uses.
func (p *Page) SetInterface(version int) { p.header.vtable.Store(uint64(version)) }

// Relay returns the counters of relayed traffic.
func (p *Page) Relay() *Relay { return &p.page.relay }

// SetPorts sets the present state of the node's ports.
func (p *Page) SetPorts(ports []Port) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.change()()
	for i := range ports[:min(len(ports), maxPorts)] {
		from, to := &ports[i], &p.ports[i]
		to.number.Store(uint64(from.Number))
		to.num.Store(uint64(from.Num))
		to.up.Store(oneIf(from.Up))
		to.rdma.Store(oneIf(from.RDMA))
		to.link.Store(uint64(from.LinkMbps))
		to.pci.Store(uint64(from.PCIMbps))
		store(to.device[:], from.Device)
		store(to.netdev[:], from.Netdev)
		store(to.cage[:], from.Cage)
		store(to.connector[:], from.Connector)
		store(to.state[:], from.State)
	}
	p.use(listPorts, min(len(ports), maxPorts))
}

// AddNotice adds a notice for the user. The page keeps the latest 32 notices.
func (p *Page) AddNotice(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.change()()
	n := p.header.notices.Add(1)
	w := &p.notices[(n-1)%maxNotices]
	w.number.Store(n)
	w.at.Store(now())
	store(w.text[:], text)
	p.use(listNotices, int(min(n, maxNotices)))
}

// Connect adds a half of a connection. If the page has no room for it, the connection is only counted.
func (p *Page) Connect(c Connection) *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, ok := p.conns.acquire()
	if !ok {
		p.header.moreConns.Add(1)
		to := new(Conn)
		to.used.Store(unshown)
		to.sending.Store(oneIf(c.Sending))
		return to
	}
	defer p.change()()
	to := &p.page.conns[i]
	for _, n := range []*Counter{&to.Bytes, &to.Messages, &to.Waits, &to.Resent, &to.Failures, &to.Outage} {
		set(&n.n, 0)
	}
	to.place.Store(uint64(i) + 1)
	to.id.Store(uint64(c.ID))
	to.sending.Store(oneIf(c.Sending))
	storeID(&to.process, c.Process)
	store(to.peer[:], c.Peer)
	to.used.Store(shown)
	p.use(listConns, i+1)
	return to
}

// Disconnect removes a connection, after all of its lanes. Its counters may still be read until another
// connection uses the slot.
func (p *Page) Disconnect(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := c.place.Swap(0)
	if i == 0 {
		if c.used.CompareAndSwap(unshown, 0) {
			p.header.moreConns.Add(^uint64(0))
		}
		return
	}
	defer p.change()()
	c.used.Store(0)
	p.conns.release(int(i) - 1)
}

// AddLane adds a lane of connection c that comes into service. index is its index among the connection's lanes.
func (p *Page) AddLane(c *Conn, index int, w Path) *Lane {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.change()()
	l := new(Lane)
	if i, ok := p.lanes.acquire(); ok {
		l = &p.page.lanes[i]
		for _, n := range []*Counter{&l.Bytes, &l.Parts, &l.Resent} {
			set(&n.n, 0)
		}
		l.place.Store(uint64(i) + 1)
		p.use(listLanes, i+1)
	} else {
		p.header.moreLanes.Add(1)
	}
	l.conn.Store(c.place.Load())
	l.index.Store(uint64(index))
	l.sends.Store(c.sending.Load())
	l.state.Store(laneUp)
	l.since.Store(now())
	l.path.Store(p.pathLocked(w))
	if y := p.pathOf(l); y != nil {
		y.up.Add(1)
		if since := y.down.Swap(0); since > 0 {
			y.outage.Add(l.since.Load() - min(since, l.since.Load()))
		}
	}
	return l
}

// LaneDown records that a lane has gone out of service; failed says that the lane has failed.
func (p *Page) LaneDown(l *Lane, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.change()()
	p.laneDownLocked(l, failed)
}

// laneDownLocked is LaneDown for a caller that holds mu and has started a change.
func (p *Page) laneDownLocked(l *Lane, failed bool) {
	if l.state.Swap(laneDown) != laneUp {
		return
	}
	l.since.Store(now())
	y := p.pathOf(l)
	if y == nil {
		return
	}
	up := y.up.Add(^uint64(0))
	if !failed {
		return
	}
	y.failures.Add(1)
	if up == 0 {
		y.lost.Add(1)
		y.down.Store(l.since.Load())
	}
}

// RemoveLane removes a lane. Its traffic is added to its path's counters.
func (p *Page) RemoveLane(l *Lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.state.Load() == 0 {
		return
	}
	defer p.change()()
	p.laneDownLocked(l, false)
	if y := p.pathOf(l); y != nil {
		past := &y.past[l.sends.Load()]
		past.Bytes.Add(l.Bytes.Value())
		past.Parts.Add(l.Parts.Value())
		past.Resent.Add(l.Resent.Value())
	}
	l.state.Store(0)
	l.path.Store(0)
	if i := l.place.Swap(0); i > 0 {
		p.lanes.release(int(i) - 1)
	} else {
		p.header.moreLanes.Add(^uint64(0))
	}
}

// pathLocked returns 1 + the index of a path, which it adds to the page if it is new; 0 if there is no room.
//
// Preconditions: mu is held and a change has started.
func (p *Page) pathLocked(w Path) uint64 {
	tier := uint64(w.Tier)
	w.Tier = 0 // not part of the key, because a receiver does not know the tier
	if i, ok := p.pathIndex[w]; ok {
		if old := &p.page.paths[i].tier; old.Load() < tier {
			old.Store(tier)
		}
		return uint64(i) + 1
	}
	i := len(p.pathIndex)
	if i >= maxPaths {
		p.header.morePaths.Store(1) // 1 means at least one, because paths without a slot are not remembered
		return 0
	}
	p.pathIndex[w] = i
	to := &p.page.paths[i]
	to.port.Store(uint64(w.Port))
	to.peerPort.Store(uint64(w.PeerPort))
	to.kind.Store(uint64(w.Kind))
	to.tier.Store(tier)
	store(to.peer[:], w.Peer)
	store(to.device[:], w.PeerDevice)
	store(to.netdev[:], w.PeerNetdev)
	store(to.route[:], w.Route)
	p.use(listPaths, i+1)
	return uint64(i) + 1
}

// pathOf returns the slot of a lane's path, nil if the path has none.
func (p *Page) pathOf(l *Lane) *pathSlot {
	if i := l.path.Load(); i > 0 {
		return &p.page.paths[i-1]
	}
	return nil
}

// use records that the first n slots of a list have been used.
func (p *Page) use(list, n int) {
	if used := &p.header.tables[list].used; used.Load() < uint64(n) {
		used.Store(uint64(n))
	}
}

// slots manages the free slots of a list. A slot that was released is not used again at once, so that a reader
// that comes late still finds the old contents.
type slots struct {
	room, next int
	free       []int // oldest first
}

// quarantine is the number of released slots that are kept free while unused slots are left.
const quarantine = 32

// acquire returns a free slot, or false if there is none.
func (f *slots) acquire() (i int, ok bool) {
	switch {
	case len(f.free) > quarantine, f.next == f.room && len(f.free) > 0:
		i = f.free[0]
		f.free = slices.Delete(f.free, 0, 1)
	case f.next < f.room:
		i = f.next
		f.next++
	default:
		return 0, false
	}
	return i, true
}

// release makes a slot free.
func (f *slots) release(i int) { f.free = append(f.free, i) }

// store writes a text, cut to the available room, and pads it with zeros.
func store(to []atomic.Uint64, text string) {
	if room := 8 * len(to); len(text) > room {
		text = strings.ToValidUTF8(text[:room], "") // remove a character that was cut
	}
	for i := range to {
		var w uint64
		for k := range 8 {
			if j := 8*i + k; j < len(text) {
				w |= uint64(text[j]) << (8 * k)
			}
		}
		to[i].Store(w)
	}
}

func storeID(to *[2]atomic.Uint64, id [16]byte) {
	store(to[:], string(id[:]))
}

func oneIf(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func now() uint64 { return uint64(time.Now().UnixNano()) }
