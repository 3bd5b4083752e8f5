package ncclnet

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"ncclmesh/cuda"
	"ncclmesh/handshake"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// fakeNetwork implements the transport's interfaces: connections within one process, in memory, that behave as a test
// requires.
type fakeNetwork struct {
	mu        sync.Mutex
	options   transport.Options
	open      map[string]int // what is open, by kind
	settled   int
	listeners map[uint32]*fakeListener
	refuse    map[string]error // what fails, by call
	notYet    map[string]int   // how often a call says "not yet" first
	closing   func()           // called when a listener is closed
	ending    func()           // called when it is closed itself
	closed    bool
	usedBy    atomic.Int64 // every context tells it
	device    topology.Device
	reach     transport.GPUReach
}

func (f *fakeNetwork) enter(call string) (again bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.refuse[call]; err != nil {
		return false, err
	}
	if f.notYet[call] > 0 {
		f.notYet[call]--
		return true, nil
	}
	return false, nil
}

func (f *fakeNetwork) count(kind string, d int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open[kind] += d
	if f.open[kind] == 0 {
		delete(f.open, kind)
	}
}

func (f *fakeNetwork) Device() topology.Device {
	return f.device
}

func (f *fakeNetwork) GPUs() []topology.Slot { return topology.GPUs(f.options.Sysfs) }

func (f *fakeNetwork) GPUReach() transport.GPUReach { return f.reach }

func (f *fakeNetwork) Listen() (listener, error) {
	if _, err := f.enter("listen"); err != nil {
		return nil, err
	}
	f.count("listener", 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &fakeListener{f: f, id: uint32(len(f.listeners) + 1)}
	f.listeners[l.id] = l
	return l, nil
}

func (f *fakeNetwork) Dial(h handshake.Handle) dialing {
	f.count("dialing", 1)
	return &fakeDialing{f: f, to: f.listeners[h.Listen]}
}

func (f *fakeNetwork) UsedBy(version int) { f.usedBy.Store(int64(version)) }

func (f *fakeNetwork) FlushBeforeExit() { f.settled++ }

func (f *fakeNetwork) Close() error {
	f.closed = true
	if f.ending != nil {
		f.ending()
	}
	return f.refuse["close"]
}

type fakeListener struct {
	f    *fakeNetwork
	id   uint32
	conn *fakeReceiver
}

func (l *fakeListener) Handle() [HandleSize]byte {
	h := handshake.Handle{Port: 1, Listen: l.id, Addrs: loopback}
	b, err := h.Encode()
	if err != nil {
		panic(err)
	}
	return b
}

func (l *fakeListener) Accept() (receiver, error) {
	if again, err := l.f.enter("accept"); again || err != nil || l.conn == nil {
		return nil, err
	}
	c := l.conn
	l.conn = nil
	l.f.count("receiver", 1)
	return c, nil
}

func (l *fakeListener) Close() error {
	l.f.count("listener", -1)
	if l.f.closing != nil {
		l.f.closing()
	}
	return nil
}

type fakeDialing struct {
	f  *fakeNetwork
	to *fakeListener
}

func (d *fakeDialing) Poll() (sender, error) {
	if again, err := d.f.enter("connect"); again || err != nil {
		return nil, err
	}
	p := &fakePipe{}
	d.to.conn = &fakeReceiver{fakeMemory{d.f, "receiver"}, p, fakeRequests{p: p}}
	d.f.count("dialing", -1)
	d.f.count("sender", 1)
	return &fakeSender{fakeMemory{d.f, "sender"}, p, fakeRequests{p: p}}, nil
}

func (d *fakeDialing) Close() error { d.f.count("dialing", -1); return nil }

type fakeMemory struct {
	f    *fakeNetwork
	kind string
}

func (m fakeMemory) RegMR(kind lane.MemoryKind, addr, length uintptr) (*lane.Region, error) {
	if _, err := m.f.enter("regMr"); err != nil {
		return nil, err
	}
	m.f.count("region", 1)
	return &lane.Region{Memory: lane.Memory{Kind: kind, Addr: addr, Length: length}}, nil
}

func (m fakeMemory) RegDmaBufMR(kind lane.MemoryKind, addr, length uintptr, _ uint64, _ int) (*lane.Region, error) {
	return m.RegMR(kind, addr, length)
}

func (m fakeMemory) DeregMR(*lane.Region) error { m.f.count("region", -1); return nil }
func (m fakeMemory) Board(uint64) uintptr       { return 0 }
func (m fakeMemory) Watch(*conn.Watch)          {}
func (m fakeMemory) Fail(err error)             { m.f.count("failed", 1) }
func (m fakeMemory) Close() error               { m.f.count(m.kind, -1); return m.f.refuse["closeComm"] }

// fakePipe transfers only sizes: a posted receive takes the next sends.
type fakePipe struct {
	err     error
	granted []*fakeRequest
}

type fakeRequests struct {
	p    *fakePipe
	all  [32]fakeRequest
	next int
}

func (r *fakeRequests) take(n int) *fakeRequest {
	q := &r.all[r.next%len(r.all)]
	if q.active {
		return nil
	}
	*q = fakeRequest{p: r.p, index: r.next % len(r.all), gen: q.gen + 1, n: n, active: true}
	r.next++
	return q
}

func (r *fakeRequests) get(i int) request {
	if i >= len(r.all) {
		return nil
	}
	return &r.all[i]
}

type fakeRequest struct {
	p      *fakePipe
	index  int
	gen    uint64
	n      int
	got    int
	active bool
	sizes  [MaxRecvs]int
}

func (q *fakeRequest) Index() int         { return q.index }
func (q *fakeRequest) Trace() *conn.Trace { return nil }
func (q *fakeRequest) Generation() uint64 { return q.gen }

func (q *fakeRequest) Outstanding() uint64 {
	if !q.active {
		return 0
	}
	return q.gen
}

func (q *fakeRequest) Test(sizes *conn.Sizes) (done bool, err error) {
	if q.p.err != nil || q.got < q.n {
		return false, q.p.err
	}
	q.active = false
	for i := range q.n {
		sizes[i] = uint32(q.sizes[i])
	}
	return true, nil
}

type fakeSender struct {
	fakeMemory
	p        *fakePipe
	requests fakeRequests
}

func (s *fakeSender) Isend(addr uintptr, size int, tag int32, r *lane.Region) (request, error) {
	if s.p.err != nil || len(s.p.granted) == 0 {
		return nil, s.p.err
	}
	q := s.requests.take(1)
	if q == nil {
		return nil, nil
	}
	g := s.p.granted[0]
	g.sizes[g.got] = size
	if g.got++; g.got == g.n {
		s.p.granted = append(s.p.granted[:0], s.p.granted[1:]...)
	}
	q.got, q.sizes[0] = 1, size
	return q, nil
}

func (s *fakeSender) Request(i int) request { return s.requests.get(i) }

type fakeReceiver struct {
	fakeMemory
	p        *fakePipe
	requests fakeRequests
}

func (c *fakeReceiver) Irecv(bufs []conn.Buffer) (request, error) {
	if c.p.err != nil {
		return nil, c.p.err
	}
	q := c.requests.take(len(bufs))
	if q == nil {
		return nil, nil
	}
	c.p.granted = append(c.p.granted, q)
	return q, nil
}

// Iflush has something to do.
func (c *fakeReceiver) Iflush(conn.Buffer) (request, error) {
	if c.p.err != nil {
		return nil, c.p.err
	}
	return c.requests.take(0), nil
}

func (c *fakeReceiver) Request(i int) request { return c.requests.get(i) }

// testNet is a plugin over a fake network, with its log.
type testNet struct {
	*Net
	t   testing.TB
	f   *fakeNetwork // the one opened last
	env map[string]string
	gpu GPU

	mu         sync.Mutex
	log, files []string
}

func newTestNet(t testing.TB) *testNet {
	n := &testNet{t: t, env: map[string]string{}}
	host := Host{
		Getenv: func(name string) string { return n.env[name] },
		Environ: func() []string {
			var list []string
			for k, v := range n.env {
				list = append(list, k+"="+v)
			}
			return list
		},
		GPU: GPU{
			Attributes: func() (cuda.Attributes, error) { return n.gpu.attributes() },
			Buffer:     func(addr uintptr) (uint64, bool) { return n.gpu.Buffer(addr) },
			Flush:      func() error { return n.gpu.Flush() },
		},
	}
	refuse := map[string]error{}
	n.f = &fakeNetwork{refuse: refuse, device: topology.Device{
		Name: "mesh0", Mbps: 200000, PCIPath: "/sys/devices/pci0000:00/0000:01:00.0", GUID: 0x1234, LatencyUs: 1.5,
	}}
	n.Net = New(newProcess(host, func(o transport.Options) (network, error) {
		if err := n.f.refuse["open"]; err != nil {
			return nil, err
		}
		n.f = &fakeNetwork{
			options:   o,
			open:      map[string]int{},
			listeners: map[uint32]*fakeListener{},
			refuse:    n.f.refuse,
			notYet:    map[string]int{},
			device:    n.f.device,
			reach:     n.f.reach,
		}
		return n.f, nil
	}))
	return n
}

func (n *testNet) logger() Logger {
	return func(level, subsystems int, file string, line int, text string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.log = append(n.log, fmt.Sprintf("%d %s", level, text))
		n.files = append(n.files, file)
	}
}

// logged returns the log since the last call.
func (n *testNet) logged() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := strings.Join(n.log, "\n")
	n.log = nil
	return s
}

// ok fails the test unless r is ncclSuccess.
func (n *testNet) ok(what string, r Result) {
	n.t.Helper()
	if r != ncclSuccess {
		n.t.Fatalf("%s: %v\n%s", what, r, n.logged())
	}
}

func (n *testNet) init() Handle {
	n.t.Helper()
	ctx, r := n.Init(n.logger(), Caller{}, -1)
	n.ok("init", r)
	return ctx
}

// connection opens a connection of the process to itself.
func (n *testNet) connection(ctx Handle) (send, recv Handle) {
	n.t.Helper()
	l, wire, r := n.Listen(ctx, 0)
	n.ok("listen", r)
	send, r = n.Connect(ctx, 0, &wire)
	n.ok("connect", r)
	recv, r = n.Accept(l)
	n.ok("accept", r)
	n.ok("closeListen", n.CloseListen(l))
	if send == 0 || recv == 0 {
		n.t.Fatalf("send %v, recv %v, want two connections", send, recv)
	}
	return send, recv
}
