package status

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/transport/stats"
	"ncclmesh/transport/window"
)

// exhibit is a process's page and window, without the rest.
type exhibit struct {
	*stats.Page
	name   string
	send   *stats.Conn
	lanes  []*stats.Lane
	window *window.Window
}

func exhibited(t *testing.T, kind stats.Kind) *exhibit {
	t.Helper()
	id := handshake.NewProcessID(nil)
	page, err := stats.Open(stats.Process{
		PID: os.Getpid(), Started: time.Unix(1_800_000_000, 0), Protocol: 4, Kind: kind, ID: id, Command: `vllm "1"`, Build: "1.0-dev", Node: "a",
	})
	if err != nil {
		t.Fatal(err)
	}
	w, err := window.Open("", id, page.File(), func(p *guard.Panic) { t.Errorf("panic: %v", p) })
	if err != nil {
		t.Fatal(err)
	}
	e := &exhibit{Page: page, name: window.Prefix + hex.EncodeToString(id[:]), window: w}
	t.Cleanup(e.end)
	return e
}

func (e *exhibit) end() {
	_ = errors.Join(e.window.Close(), e.Close())
}

// job is one of two peers: one over both halves of a cable, one through that.
func job(t *testing.T) *exhibit {
	e := exhibited(t, stats.Job)
	e.SetInterface(12)
	e.SetPorts([]stats.Port{
		{Number: 0, Device: "rocep1s0f0", Num: 1, Netdev: "enp1s0f0np0", Cage: "00/p0", Connector: "p0", Up: true, RDMA: true, State: "ACTIVE", LinkMbps: 200000},
		{Number: 1, Device: "rocep2s0f0", Num: 1, Netdev: "enP2p1s0f0np0", Cage: "00/p0", Connector: "p0", RDMA: true, State: "DOWN"},
	})
	e.send = e.Connect(stats.Connection{ID: 1, Sending: true, Peer: "b"})
	far := e.Connect(stats.Connection{ID: 2, Sending: true, Peer: "d"})
	for i, netdev := range []string{"enp1s0f1np1", "enP2p1s0f1np1"} {
		e.lanes = append(e.lanes, e.AddLane(e.send, i, stats.Path{Peer: "b", Port: i, PeerPort: 2 + i, PeerNetdev: netdev, Kind: stats.RDMA}))
	}
	e.lanes = append(e.lanes, e.AddLane(far, 0, stats.Path{Peer: "d", Port: 0, PeerPort: 1, PeerNetdev: "eth1", Kind: stats.Relayed, Route: "b", Tier: 1}))
	e.lanes[0].Bytes.Add(1e9)
	e.lanes[0].Parts.Add(5)
	e.lanes[0].Resent.Add(7)
	return e
}

// Windows that do not answer before all others have been looked at, as any user can make them, hold nobody up.
func TestLooksAtOnce(t *testing.T) {
	const n = 40
	var names []string
	var came sync.WaitGroup
	came.Add(n)
	for i := range n {
		name := fmt.Sprintf("@ncclmesh-test-%d-%d", os.Getpid(), i)
		l, err := net.Listen("unixpacket", name)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		names = append(names, name)
		go func() {
			c, err := l.Accept()
			came.Done()
			if err != nil {
				return
			}
			defer c.Close()
			came.Wait()
			_, _ = c.Write([]byte("nothing"))
		}()
	}
	seen, troubles, err := lookAll(t.Context(), func() ([]string, error) { return names, nil })
	if len(seen) != 0 || len(troubles) != n || err != nil {
		t.Fatalf("%d seen, %d troubles, %v", len(seen), len(troubles), err)
	}
	for _, trouble := range troubles {
		if !strings.HasPrefix(trouble.Error, "it sent \"nothing\"") {
			t.Errorf("%s: %s", trouble.Name, trouble.Error)
		}
	}
}

func TestOwnFirst(t *testing.T) {
	own := look{who: window.Owner{PID: 9, UID: os.Geteuid()}}
	other := look{who: window.Owner{PID: 1, UID: os.Geteuid() + 1}}
	root := look{who: window.Owner{PID: 5}}
	if own.rank() != 0 || root.rank() != 0 || other.rank() != 1 {
		t.Errorf("own %d, root's %d, another's %d", own.rank(), root.rank(), other.rank())
	}
}

// seen is what two looks through these windows say.
func seen(t *testing.T, between func(), names ...string) *Report {
	t.Helper()
	looks := 0
	v := &Viewer{Find: func() ([]string, error) {
		if looks++; looks == 2 && between != nil {
			between()
		}
		return names, nil
	}}
	if _, err := v.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := v.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func text(t *testing.T, r *Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestStatusText(t *testing.T) {
	t.Parallel()
	e := job(t)
	began := time.Now()
	e.AddNotice("it was all fine")
	relay := exhibited(t, stats.Relaying)
	relay.Relay().Carried.Add(3)
	relay.Relay().Circuits.Add(2)
	relay.Relay().Forth.Add(3 << 30)
	r := seen(t, func() { e.LaneDown(e.lanes[1], true) }, e.name, relay.name)
	down, said := &r.Processes[0].Cables[0].Ways[1].DownSeconds, &r.Processes[0].Words[0].Time
	ago := r.Time.Sub(*said).Seconds()
	if passed := time.Since(began).Seconds(); *down <= 0 || *down > passed || ago <= 0 || ago > passed {
		t.Errorf("down for %v s, and said %v s ago, of %v s", *down, ago, passed)
	}
	*down, *said = 0.5, r.Time // a second may have passed where others run too
	got := text(t, r)
	pid := "pid " + strconv.Itoa(os.Getpid()) + ` vllm "1"  `
	want := pid + `NCCL Mesh v12  peers 2
PEER  CABLE    LANES      TX GB/s  RX GB/s  LOST  STATE
b     p0═p1    1/2 rdma   0        0        1     enP2p1s0f0np0 down 00:00
d     p0═eth1  1 relayed  0        0        0     ok, through b
00:00 ago: it was all fine

` + pid + `relay  peers 0
relays for others: 2 now, 3 in all, 3.2 GB
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Rates are those between two looks; a counter that is gone is none.
func TestRates(t *testing.T) {
	t.Parallel()
	way := stats.Path{Peer: "b", Kind: stats.RDMA}
	at := time.Unix(1_800_000_000, 0)
	look := func(after time.Duration, sent, received uint64) *stats.Snapshot {
		return &stats.Snapshot{At: at.Add(after), Paths: []stats.PathState{{Path: way, Up: 1, Sent: stats.Volume{Bytes: sent}, Received: stats.Volume{Bytes: received}}}}
	}
	tests := []struct {
		name           string
		before         *stats.Snapshot
		sent, received float64
	}{
		{"no look before", nil, 0, 0},
		{"two seconds", look(0, 1000, 500), 500, 250},
		{"a new way", &stats.Snapshot{At: at}, 1000, 500},
		{"a process that began anew", look(0, 5000, 900), 0, 50},
		{"at once", look(2*time.Second, 0, 0), 0, 0},
	}
	for _, tt := range tests {
		c := cablesOf(tt.before, look(2*time.Second, 2000, 1000))[0]
		if c.SentPerSec != tt.sent || c.ReceivedPerSec != tt.received {
			t.Errorf("%s: %v and %v a second, want %v and %v", tt.name, c.SentPerSec, c.ReceivedPerSec, tt.sent, tt.received)
		}
	}
	for rate, want := range map[float64]string{0: "0", 12.34e9: "12.3", 99e6: "0.099", 170_000: "0.00017"} {
		if got := gigabytes(rate); got != want {
			t.Errorf("%v: %q, want %q", rate, got, want)
		}
	}
	for s, want := range map[float64]string{0.4: "00:00", 41: "00:41", 3599: "59:59", 3723: "1:02:03"} {
		if got := clock(s); got != want {
			t.Errorf("%v s: %q, want %q", s, got, want)
		}
	}
}

// A way out that is not needed any more is not shown as broken.
func TestSpareWays(t *testing.T) {
	t.Parallel()
	conns := []stats.ConnState{{Connection: stats.Connection{Peer: "b"}}}
	down := time.Unix(1_800_000_000, 0)
	direct, spare := stats.Path{Peer: "b", PeerNetdev: "x", Kind: stats.RDMA}, stats.Path{Peer: "b", PeerNetdev: "y", Kind: stats.Relayed, Route: "c", Tier: 1}
	states := func(a, b stats.PathState) (all []string) {
		for _, c := range cablesOf(nil, &stats.Snapshot{At: down.Add(41 * time.Second), Conns: conns, Paths: []stats.PathState{a, b}}) {
			all = append(all, c.Cable+" "+c.State)
		}
		return all
	}
	for want, got := range map[string][]string{
		"port 0═x ok": states(stats.PathState{Path: direct, Up: 1}, stats.PathState{Path: spare, Down: down}),
		"port 0═x  down 00:41, port 0═y ok, through c": states(stats.PathState{Path: direct, Down: down}, stats.PathState{Path: spare, Up: 2}),
		"port 0═x not in use, port 0═y  down 00:41":    states(stats.PathState{Path: direct}, stats.PathState{Path: spare, Down: down}),
	} {
		if diff := cmp.Diff(want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// What goes between two ports is one way, though each end has its own words for the nodes between.
func TestBothEndsAreOneWay(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	out := stats.Path{Peer: "c", PeerPort: 3, PeerNetdev: "x", Kind: stats.Relayed, Route: "b", Tier: 1}
	in := stats.Path{Peer: "c", PeerPort: 3, PeerNetdev: "x", Kind: stats.Relayed}
	look := func(out, in stats.PathState) []Cable {
		return cablesOf(nil, &stats.Snapshot{At: at.Add(time.Minute), Conns: []stats.ConnState{{Connection: stats.Connection{Peer: "c"}}}, Paths: []stats.PathState{in, out}})
	}
	got := look(stats.PathState{Path: out, Up: 2, Sent: stats.Volume{Bytes: 7}}, stats.PathState{Path: in, Down: at, Lost: 1, Received: stats.Volume{Bytes: 5}})
	if len(got) != 1 || got[0].lanes() != "1 relayed" || got[0].State != "ok, through b" || got[0].Lost != 1 || got[0].Ways[0].Sent.Bytes != 7 || got[0].Ways[0].Received.Bytes != 5 {
		t.Errorf("%+v", got)
	}
	got = look(stats.PathState{Path: out}, stats.PathState{Path: in, Down: at})
	if len(got) != 1 || got[0].lanes() != "0/1 relayed" || !strings.HasSuffix(got[0].State, " down 01:00") {
		t.Errorf("%+v", got)
	}
}

// JSON is whole, and says which version of it it is.
func TestStatusJSON(t *testing.T) {
	t.Parallel()
	e := job(t)
	out, err := json.Marshal(seen(t, nil, e.name))
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(out, &r); err != nil || r.Schema != "ncclmesh.status/1" || len(r.Processes) != 1 || strings.Contains(string(out), "null") {
		t.Fatalf("%v: %s", err, out)
	}
	p := r.Processes[0]
	if c := p.Cables[0]; len(p.Cables) != 2 || c.Up != 2 || c.Ways[0].Sent != (Volume{1e9, 5, 7}) || c.Ways[0].Device != "rocep1s0f0" || c.Ways[0].PeerNetdev != "enp1s0f1np1" {
		t.Errorf("%+v", p.Cables)
	}
	if c := p.Connections[0]; len(p.Connections) != 2 || c.Peer != "b" || !c.Sending || len(c.Lanes) != 2 || c.Lanes[0].Bytes != 1e9 {
		t.Errorf("%+v", p.Connections)
	}
	if p.Ports[0].Lanes != 2 || p.Ports[1].Up || p.Vtable != 12 || p.Peers != 2 {
		t.Errorf("%+v", p)
	}
}

// What cannot be read is a line each, and the rest is shown.
func TestStatusTroubles(t *testing.T) {
	t.Parallel()
	fine, gone := job(t), job(t)
	gone.end()
	strange := exhibited(t, stats.Job)
	id := handshake.NewProcessID(nil)
	zeros, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zeros.Close()
	w, err := window.Open("", id, zeros, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	garbled := window.Prefix + hex.EncodeToString(id[:])
	r := seen(t, nil, gone.name, garbled, fine.name, strange.name, "/no/such/socket")
	if len(r.Processes) != 2 || len(r.Errors) != 1 {
		t.Fatalf("%+v", r)
	}
	if said := r.Errors[0].String(); !strings.HasPrefix(said, "pid ") || !strings.Contains(said, "its counters are not a page: they are not sealed") {
		t.Errorf("it says %q", said)
	}
	if out := text(t, seen(t, nil, gone.name)); out != "no process with the plugin, and no relay, is visible here\n" {
		t.Errorf("%q", out)
	}
	foreign := look{name: "@ncclmesh/x", who: window.Owner{UID: 4294967}, err: window.ErrForeign}
	if got, want := foreign.trouble().String(), "@ncclmesh/x of user 4294967: only that user and root may look at its counters"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// NCCL_MESH_STATUS leads to sockets in the file system.
func TestWindowsInFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	id := handshake.NewProcessID(nil)
	page, err := stats.Open(stats.Process{Kind: stats.Job, ID: id})
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	w, err := window.Open(dir, id, page.File(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	socket := filepath.Join(dir, hex.EncodeToString(id[:]))
	for _, at := range []string{dir, socket} {
		names, err := Windows(at)
		if err != nil || names[len(names)-1] != socket {
			t.Errorf("%s: %v, %v", at, names, err)
		}
	}
}

// A port with a cable is counted once, although a process may use it for RDMA and, as an interface, for TCP.
func TestMetricsOfPorts(t *testing.T) {
	t.Parallel()
	e := exhibited(t, stats.Job)
	e.SetPorts([]stats.Port{
		{Number: 0, Device: "rocep1s0f0", Num: 1, Netdev: "enp1s0f0np0", RDMA: true, State: "DOWN"},
		{Number: 1, Netdev: "enp1s0f0np0"},
		{Number: 2, Netdev: "eth1", Up: true},
	})
	text, _, err := Exposition(t.Context(), func() ([]string, error) { return []string{e.name}, nil })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "ncclmesh_port_") {
			got = append(got, line)
		}
	}
	want := []string{
		"ncclmesh_port_info{device=\"eth1\",port=\"0\",netdev=\"eth1\",cage=\"\",peer=\"\"} 1\n",
		"ncclmesh_port_info{device=\"rocep1s0f0\",port=\"1\",netdev=\"enp1s0f0np0\",cage=\"\",peer=\"\"} 1\n",
		"ncclmesh_port_up{device=\"eth1\",port=\"0\"} 1\n",
		"ncclmesh_port_up{device=\"rocep1s0f0\",port=\"1\"} 0\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Prometheus' own parser takes what metrics writes.
func TestMetrics(t *testing.T) {
	t.Parallel()
	e, relay := job(t), exhibited(t, stats.Relaying)
	e.LaneDown(e.lanes[1], true)
	relay.Relay().Device.Add(12345)
	text, troubles, err := Exposition(t.Context(), func() ([]string, error) { return []string{e.name, relay.name}, nil })
	if err != nil || len(troubles) > 0 {
		t.Fatal(err, troubles)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	parsed, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for name, f := range parsed {
		for _, sample := range f.Metric {
			var l []string
			for _, p := range sample.Label {
				if p.GetName() != "process" && p.GetName() != "pid" {
					l = append(l, p.GetValue())
				}
			}
			v := sample.GetGauge().GetValue() + sample.GetCounter().GetValue()
			got[strings.TrimPrefix(name, "ncclmesh_")+" "+strings.Join(l, ",")] += v
		}
	}
	half := func(i string) string { return "b,p0═p1,rocep" + i + "s0f0,1,rdma," }
	for want, v := range map[string]float64{
		"lane_bytes_total " + half("1") + ",sent": 1e9, "lane_bytes_total " + half("1") + ",received": 0,
		"lane_messages_total " + half("1") + ",sent": 5, "lane_resent_bytes_total " + half("1"): 7,
		"lane_up " + half("1"): 1, "lane_up " + half("2"): 0, "lane_failures_total " + half("2"): 1, "lane_lost_total " + half("2"): 1,
		"lane_up d,p0═eth1,rocep1s0f0,1,relayed,b": 1, "connections b": 1, "connections d": 1,
		"relay_bytes_total ": 12345, "unreadable_processes ": 0, "port_up rocep2s0f0,1": 0,
		"port_info rocep1s0f0,1,enp1s0f0np0,00/p0,d": 1, `process_info vllm "1",a,job,1.0-dev,12`: 1, "start_time_seconds ": 3_600_000_000,
	} {
		if g, ok := got[want]; !ok || g != v {
			t.Errorf("%q is %v, %v; want %v", want, g, ok, v)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
	for _, f := range families {
		if f.kind != strings.ToLower(parsed[f.name].GetType().String()) || (f.kind == "counter") != strings.HasSuffix(f.name, "_total") {
			t.Errorf("%s is a %v", f.name, parsed[f.name].GetType())
		}
	}
}
