package stats

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "write the golden page")

var (
	somebody = Process{
		PID: 4711, Started: time.Unix(0, 1_800_000_000_123_456_789), Protocol: 2, Kind: Job, ID: [16]byte{1, 2, 15: 16},
		Command: "VLLM::Worker", Build: "1.0-dev+gabcdef0", Node: "node-a",
	}
	some = []Port{
		{Number: 0, Device: "rocep1s0f0", Num: 1, Netdev: "enp1s0f0np0", Cage: "0011/p0", Connector: "p0", Up: true, RDMA: true, State: "ACTIVE", LinkMbps: 200000, PCIMbps: 126000},
		{Number: 1, Netdev: "wüst", State: "DOWN"},
	}
	cable = Path{Peer: "node-b", Port: 0, PeerPort: 2, PeerDevice: "rocep1s0f1", PeerNetdev: "enp1s0f1np1", Kind: RDMA}
	round = Path{Peer: "node-b", Port: 1, PeerPort: 3, PeerNetdev: "enp2", Kind: Relayed, Route: "node-c and node-d", Tier: 1}
)

// fill puts entries of every kind on a page, and returns the snapshot that a reader should get.
func fill(p *Page) *Snapshot {
	p.SetInterface(12)
	p.SetPorts(some)
	p.Relay().Circuits.Add(1)
	p.Relay().Carried.Add(2)
	p.Relay().Failed.Add(3)
	p.Relay().Forth.Add(40)
	p.Relay().Back.Add(50)
	p.Relay().Device.Add(60)
	to := Connection{ID: 7, Sending: true, Peer: "node-b", Process: [16]byte{9}}
	from := Connection{ID: 8, Peer: "node-b", Process: [16]byte{9}}
	s, r := p.Connect(to), p.Connect(from)
	s.Bytes.Add(1000)
	s.Messages.Add(10)
	s.Waits.Add(3)
	s.Resent.Add(200)
	s.Failures.Add(1)
	s.Outage.Add(5e9)
	gone, l0, l1, l2 := p.AddLane(s, 0, cable), p.AddLane(s, 1, cable), p.AddLane(r, 0, cable), p.AddLane(r, 1, round)
	carry := func(l *Lane, bytes, parts, resent uint64) {
		l.Bytes.Add(bytes)
		l.Parts.Add(parts)
		l.Resent.Add(resent)
	}
	carry(gone, 300, 3, 0)
	carry(l0, 900, 7, 200)
	carry(l1, 40, 1, 0)
	carry(l2, 2, 2, 0)
	p.LaneDown(gone, true)
	p.RemoveLane(gone)
	p.LaneDown(l2, true)
	p.AddNotice("first")
	p.AddNotice("lane 1 is down: …")
	return &Snapshot{
		Process: somebody, Vtable: 12, Ports: some, Relay: RelayCounts{1, 2, 3, 150},
		Paths: []PathState{
			{Path: cable, Up: 2, Failures: 1, Sent: Volume{1200, 10, 200}, Received: Volume{40, 1, 0}},
			{Path: round, Lost: 1, Failures: 1, Received: Volume{2, 2, 0}},
		},
		Conns: []ConnState{{Connection: to, Bytes: 1000, Messages: 10, Waits: 3, Resent: 200, Failures: 1, Outage: 5 * time.Second}, {Connection: from}},
		Lanes: []LaneState{
			{Volume: Volume{900, 7, 200}, Conn: 0, Path: 0, Index: 1, Up: true},
			{Volume: Volume{40, 1, 0}, Conn: 1, Path: 0, Index: 0, Up: true},
			{Volume: Volume{2, 2, 0}, Conn: 1, Path: 1, Index: 1},
		},
		Notices: []Notice{{Text: "first", number: 1}, {Text: "lane 1 is down: …", number: 2}},
	}
}

// but are options for cmp that ignore times.
var but = cmp.Options{
	cmpopts.IgnoreFields(Snapshot{}, "At"), cmpopts.IgnoreFields(PathState{}, "Down"), cmpopts.IgnoreFields(LaneState{}, "Since"),
	cmpopts.IgnoreFields(Notice{}, "At"), cmp.AllowUnexported(Notice{}), cmpopts.EquateEmpty(),
}

// Another process reads exactly what was counted, from memory that it can neither write nor resize.
func TestSharedPage(t *testing.T) {
	p, err := Open(somebody)
	if err != nil {
		t.Fatal(err)
	}
	want := fill(p)
	got, err := Read(p.File())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, but); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, err = p.Snapshot(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, but); diff != "" {
		t.Errorf("to the process itself (-want +got):\n%s", diff)
	}
	if since, down := got.Down(&got.Paths[1]); !down || time.Since(since) > time.Hour || got.Paths[0].Down != (time.Time{}) {
		t.Errorf("down since %v, %v; the other since %v", since, down, got.Paths[0].Down)
	}
	if _, err := p.File().WriteAt([]byte("x"), 0); err == nil {
		t.Error("the descriptor can be written")
	}
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", p.File().Fd()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.WriteAt([]byte("x"), 0); err == nil {
		t.Error("opened anew it can be written")
	}
	for _, size := range []int64{0, 1 << 30} {
		if err := again.Truncate(size); err == nil {
			t.Errorf("it can be made %d bytes long", size)
		}
	}
	late := p.Connect(Connection{Peer: "node-c"})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	late.Bytes.Add(1)
	p.AddNotice("too late")
	if got, err := Read(again); err != nil || len(got.Notices) != 2 {
		t.Errorf("what another process holds: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	next, err := Open(somebody)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if got, err := Read(next.File()); err != nil || len(got.Conns) > 0 || len(got.Notices) > 0 {
		t.Errorf("a new page at the old place: %+v, %v", got, err)
	}
}

// Readers rely on the layout of a version. A change of the layout needs another version.
func TestGoldenPage(t *testing.T) {
	t.Parallel()
	const path = "testdata/page.hex"
	p := Private(somebody)
	want := fill(p)
	p.stopClock()
	words := wordsOf(p.page)
	b, err := copyPage(words)
	if err != nil {
		t.Fatal(err)
	}
	lines := dump(b)
	if *update {
		if err := os.WriteFile(path, []byte(lines), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(golden), lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, err := parse(undump(t, string(golden), len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, but); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}

// wordsOf returns the words of a page.
func wordsOf(p *page) []atomic.Uint64 {
	return unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(p)), pageSize/8)
}

// stopClock sets every time on a page to the same value.
func (p *Page) stopClock() {
	const at = 1_800_000_001_000_000_000
	for i := range p.page.lanes[:4] {
		if l := &p.page.lanes[i]; l.since.Load() > 0 {
			l.since.Store(at)
		}
	}
	for i := range p.page.paths[:2] {
		if w := &p.page.paths[i]; w.down.Load() > 0 {
			w.down.Store(at)
		}
	}
	for i := range p.page.notices[:2] {
		p.page.notices[i].at.Store(at)
	}
}

// dump writes the words of a page that are not zero, one per line.
func dump(b []byte) string {
	var s strings.Builder
	for i := 0; i < len(b); i += 8 {
		if w := b[i : i+8]; string(w) != string(make([]byte, 8)) {
			fmt.Fprintf(&s, "%06x %s\n", i, hex.EncodeToString(w))
		}
	}
	return s.String()
}

func undump(t *testing.T, text string, size int) []byte {
	t.Helper()
	b := make([]byte, size)
	for l := range strings.Lines(text) {
		var at int
		var w []byte
		if _, err := fmt.Sscanf(l, "%x %x", &at, &w); err != nil || at > size-8 {
			t.Fatalf("%q: %v", l, err)
		}
		copy(b[at:], w)
	}
	return b
}

// A path's traffic never decreases while it is read, whatever lanes are added and removed.
func TestReadWhileLanesComeAndGo(t *testing.T) {
	t.Parallel()
	p := Private(somebody)
	words := wordsOf(p.page)
	var wg sync.WaitGroup
	over := make(chan struct{})
	for i := range 3 {
		wg.Go(func() {
			for {
				c := p.Connect(Connection{ID: uint32(i), Sending: true, Peer: "node-b"})
				l := p.AddLane(c, i, cable)
				for range 100 {
					l.Bytes.Add(1)
				}
				p.LaneDown(l, i == 0)
				p.RemoveLane(l)
				p.Disconnect(c)
				select {
				case <-over:
					return
				case <-time.After(10 * time.Microsecond):
				}
			}
		})
	}
	var last uint64
	for range 50 {
		s, err := snapshot(words)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Paths) > 0 {
			if now := s.Paths[0].Sent.Bytes; now < last {
				t.Fatalf("%d bytes after %d", now, last)
			} else {
				last = now
			}
		}
	}
	close(over)
	wg.Wait()
	s, err := snapshot(words)
	if err != nil || len(s.Conns)+len(s.Lanes) > 0 || s.Paths[0].Up != 0 || s.Paths[0].Sent.Bytes < last || s.MoreLanes+s.MoreConns > 0 {
		t.Errorf("at the end %+v, %v", s, err)
	}
}

// Entries without a slot are counted, and the snapshot says so.
func TestMore(t *testing.T) {
	t.Parallel()
	p := Private(somebody)
	var conns []*Conn
	var lanes []*Lane
	for i := range maxConns + 3 {
		c := p.Connect(Connection{ID: uint32(i), Peer: strings.Repeat("ü", 40)})
		conns = append(conns, c)
		for k := range 5 {
			w := cable
			w.PeerPort = (5*i + k) % (maxPaths + 10)
			lanes = append(lanes, p.AddLane(c, k, w))
			lanes[len(lanes)-1].Bytes.Add(1)
		}
	}
	s, err := snapshot(wordsOf(p.page))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Conns) != maxConns || s.MoreConns != 3 || s.MoreLanes != 5*(maxConns+3)-maxLanes || len(s.Paths) != maxPaths || !s.MorePaths {
		t.Errorf("%d connections and %d more, %d lanes and %d more, %d ways, more %v", len(s.Conns), s.MoreConns, len(s.Lanes), s.MoreLanes, len(s.Paths), s.MorePaths)
	}
	if got := s.Conns[0].Peer; got != strings.Repeat("ü", 32) {
		t.Errorf("a long name becomes %q", got)
	}
	for _, l := range lanes {
		p.LaneDown(l, false)
		p.RemoveLane(l)
		p.RemoveLane(l)
	}
	for _, c := range conns {
		p.Disconnect(c)
		p.Disconnect(c)
	}
	for range 2 * maxNotices {
		p.AddNotice(strings.Repeat("x", 1000))
	}
	s, err = snapshot(wordsOf(p.page))
	if err != nil || len(s.Conns)+len(s.Lanes) > 0 || s.MoreConns+s.MoreLanes > 0 {
		t.Errorf("when all have gone: %d connections, %d lanes, %d and %d more, %v", len(s.Conns), len(s.Lanes), s.MoreConns, s.MoreLanes, err)
	}
	var all uint64
	for _, w := range s.Paths {
		all += w.Received.Bytes
	}
	if want := uint64(len(lanes) * maxPaths / (maxPaths + 10)); all < want-5 || all > uint64(len(lanes)) {
		t.Errorf("%d bytes, want about %d", all, want)
	}
	if len(s.Notices) != maxNotices || s.Notices[0].number != maxNotices+1 || len(s.Notices[0].Text) != 448 {
		t.Errorf("%d words, from the %dth, of %d bytes", len(s.Notices), s.Notices[0].number, len(s.Notices[0].Text))
	}
}
