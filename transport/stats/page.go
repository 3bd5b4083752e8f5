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

// A Page is what one end of the mesh shows of itself. Its methods may be called from any goroutine. They take a mutex that
// is held for as long as some words take to be written, and are no part of the data path: that adds to the counters.
type Page struct {
	*page
	readonly *os.File // nil where nobody else sees the page

	mu        sync.Mutex // a leaf
	pathIndex map[Path]int
	conns     slots
	lanes     slots
}

// Open makes a page that other processes can be shown.
func Open(who Process) (*Page, error) {
	shared, readonly, err := share()
	if err != nil {
		return nil, err
	}
	return newPage(shared, readonly, who), nil
}

// Private makes one that nobody else sees.
func Private(who Process) *Page { return newPage(new(page), nil, who) }

func newPage(memory *page, readonly *os.File, who Process) *Page {
	p := &Page{page: memory, readonly: readonly, pathIndex: map[Path]int{}, conns: slots{room: maxConns}, lanes: slots{room: maxLanes}}
	h := &p.header
	h.version.Store(version)
	h.size.Store(uint64(pageSize))
	for i, t := range p.tables() {
		h.tables[i].offset.Store(t[0])
		h.tables[i].slot.Store(t[1])
		h.tables[i].room.Store(t[2])
	}
	h.pid.Store(uint64(who.PID))
	h.started.Store(uint64(who.Started.UnixNano()))
	h.protocol.Store(uint64(who.Protocol))
	h.kind.Store(uint64(who.Kind))
	storeID(&h.process, who.ID)
	store(h.command[:], who.Command)
	store(h.build[:], who.Build)
	store(h.node[:], who.Node)
	h.magic.Store(magic) // a page without it is not ready
	return p
}

// Snapshot is what the page says now.
func (p *Page) Snapshot() (*Snapshot, error) { return snapshot(p.page.memory()) }

// File is a descriptor of the page that can only be read; nil where nobody else sees it. It is the page's.
func (p *Page) File() *os.File { return p.readonly }

// Close takes the page from those to come. What is counted from here on is lost. It may be called again.
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

// change is called with p locked around whatever is more than one word.
func (p *Page) change() (done func()) {
	p.header.seq.Add(1)
	return func() { p.header.seq.Add(1) }
}

// SetInterface says which version of NCCL's interface the process is used by.
func (p *Page) SetInterface(version int) { p.header.vtable.Store(uint64(version)) }

// Relay is where to count what is carried for others.
func (p *Page) Relay() *Relay { return &p.page.relay }

// SetPorts shows the ports as they are now.
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

// Say keeps what people should know, for as long as no more than 31 others have been said.
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

// Connect shows a half of a connection. Where there is no room for it, it is counted only.
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

// Disconnect takes a connection off the page, once all of its lanes are. Its counters may still be read, until another takes
// its place.
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

// Serve shows a lane of a connection that is put into service.
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

// Leave says that a lane is out of service: failed says that it is for a fault of its own.
func (p *Page) LaneDown(l *Lane, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.change()()
	p.laneDownLocked(l, failed)
}

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

// Remove takes a lane off the page. What it has carried stays with its way.
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

// wayLocked is 1 and the index of a way, which is put on the page if it is new; 0 where there is no room.
func (p *Page) pathLocked(w Path) uint64 {
	tier := uint64(w.Tier)
	w.Tier = 0 // which the receiver does not know
	if i, ok := p.pathIndex[w]; ok {
		if old := &p.page.paths[i].tier; old.Load() < tier {
			old.Store(tier)
		}
		return uint64(i) + 1
	}
	i := len(p.pathIndex)
	if i >= maxPaths {
		p.header.morePaths.Store(1) // or more of them: they are not remembered
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

func (p *Page) pathOf(l *Lane) *pathSlot {
	if i := l.path.Load(); i > 0 {
		return &p.page.paths[i-1]
	}
	return nil
}

// use says that so many slots of a list have been in use.
func (p *Page) use(list, n int) {
	if used := &p.header.tables[list].used; used.Load() < uint64(n) {
		used.Store(uint64(n))
	}
}

// places are the slots of a list that are free. One that was given back rests before it is taken again, so that who looks
// late finds what was there.
type slots struct {
	room, next int
	free       []int // oldest first
}

const quarantine = 32

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

func (f *slots) release(i int) { f.free = append(f.free, i) }

// store writes a text, or as much of it as there is room for, and zeros.
func store(to []atomic.Uint64, text string) {
	if room := 8 * len(to); len(text) > room {
		text = strings.ToValidUTF8(text[:room], "") // not half a letter
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
