package transport

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/transport/topology"
)

// The network that sets connections up carries lanes only when nothing else does,
// or when the user says so.
func TestLaneInterfaces(t *testing.T) {
	plain := func(name, addr string, mbps int) topology.Port {
		p := netip.MustParsePrefix(addr)
		return topology.Port{Netdev: name, LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET, Active: true, LinkMbps: mbps, Addrs: []netip.Prefix{p},
			GIDs: []topology.GID{{Addr: netip.AddrFrom16(p.Addr().As16()), Raw: p.Addr().As16(), Type: topology.GIDTypeNone, Netdev: name, PrefixLen: p.Bits()}}}
	}
	mgmt := [2]topology.Port{plain("mgmt", "10.0.0.1/24", 1000), plain("mgmt", "10.0.0.2/24", 1000)}
	cable := [2]topology.Port{plain("p0", "192.168.1.1/24", 1000), plain("q0", "192.168.1.2/24", 1000)}
	fast := [2]topology.Port{plain("p1", "192.168.2.1/24", 100000), plain("q1", "192.168.2.2/24", 100000)}
	tests := []struct {
		name, control, lanes string
		ports                [][2]topology.Port
		want                 []string
		last                 []string
	}{
		{"nothing said", "", "", [][2]topology.Port{mgmt, cable}, []string{"mgmt", "p0"}, nil},
		{"named for control", "mgmt", "", [][2]topology.Port{mgmt, cable}, []string{"p0"}, []string{"mgmt"}},
		{"named for control, and nothing else", "mgmt", "", [][2]topology.Port{mgmt}, nil, []string{"mgmt"}},
		{"named for both", "mgmt", "=mgmt", [][2]topology.Port{mgmt, cable}, []string{"mgmt"}, nil},
		{"excluded from control", "^mgmt", "", [][2]topology.Port{mgmt, cable}, []string{"p0"}, nil},
		{"a slow network beside a fast one", "", "", [][2]topology.Port{mgmt, cable, fast}, []string{"p1"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			control, err := topology.ParseInterfaces(tt.control)
			if err != nil {
				t.Fatal(err)
			}
			lanes, err := topology.ParseInterfaces(tt.lanes)
			if err != nil {
				t.Fatal(err)
			}
			var node topology.Node
			var peer []topology.Port
			for _, p := range tt.ports {
				node.Plain, peer = append(node.Plain, p[0]), append(peer, p[1])
			}
			tr := &Transport{opts: Options{Sysfs: t.TempDir(), Interfaces: control, LaneIfs: lanes, GIDs: topology.AnyGID}}
			if err := tr.openPlain(&node); err != nil {
				t.Fatal(err)
			}
			ports := tr.topologyPorts()
			groups := tr.candidates(ports, topology.Describe(peer, topology.AnyGID))
			var got [3][]string
			for g, candidates := range groups {
				for _, c := range candidates {
					got[g] = append(got[g], ports[c.Local].Netdev)
				}
			}
			if diff := cmp.Diff([3][]string{nil, tt.want, tt.last}, got); diff != "" {
				t.Errorf("interfaces of the lanes (-want +got):\n%s", diff)
			}
		})
	}
}

// captured is a log that a test looks into.
type captured struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (c *captured) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.Write(b)
}

func (c *captured) count(s string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Count(c.buf.String(), s)
}

// Nodes with and without RDMA mix: each pair has the best lanes there are, and a
// node that has RDMA and cannot use it says so once.
func TestMixed(t *testing.T) {
	leaks(t)
	var log captured
	rdma := newTransport(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	also := newTransport(t)
	plain := tcpTransport(t, 1)
	const warning = "talk over TCP, slower than RDMA"
	for _, tt := range []struct {
		name     string
		from, to *Transport
		tcp      bool
		warnings int
	}{
		{"both have RDMA", rdma, also, false, 0},
		{"the receiver has none", rdma, plain, true, 1},
		{"again", rdma, plain, true, 1},
		{"the sender has none", plain, rdma, true, 1},
	} {
		s, r := connect(t, tt.from, tt.to)
		if tcp := len(s.sockets) > 0; tcp != tt.tcp || tcp != (len(r.sockets) > 0) || tcp == (len(s.devs) > 0) {
			t.Errorf("%s: %d sockets and %d devices at the sender, %d sockets at the receiver", tt.name, len(s.sockets), len(s.devs), len(r.sockets))
		}
		sm, sb := memory(t, 1<<20)
		rm, rb := memory(t, 1<<20)
		fill(sb, 3)
		sg, rg := register(t, s, sm), register(t, r, rm)
		rq := irecv(t, r, Buffer{rm.Addr(), 1 << 20, 0, rg})
		both(t, "message", isend(t, s, sm, 0, 1<<20, 0, sg), rq)
		if !bytes.Equal(sb, rb) {
			t.Errorf("%s: the bytes differ", tt.name)
		}
		closeBoth(t, s, r)
		if n := log.count(warning); n != tt.warnings {
			t.Errorf("%s: %d warnings, want %d", tt.name, n, tt.warnings)
		}
	}
	if d := rdma.Device(); d.LatencyUs != 0 {
		t.Errorf("a node with RDMA is described as one of TCP: %+v", d)
	}
	if d := plain.Device(); d.LatencyUs == 0 {
		t.Errorf("a node of TCP is described as one with RDMA: %+v", d)
	}
}

// A node that has RDMA and only receives, from one that has none, says so too.
func TestMixedReceiver(t *testing.T) {
	leaks(t)
	var log captured
	rdma := newTransport(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	plain := tcpTransport(t, 1, func(o *Options) { o.HostID = "plain" })
	for range 2 {
		s, r := connect(t, plain, rdma)
		closeBoth(t, s, r)
		if n := log.count("plain talk over TCP, slower than RDMA"); n != 1 || log.count(": plain offers no RDMA port") != 1 {
			t.Errorf("%d warnings, want 1", n)
		}
	}
}

// Where the configuration wants RDMA only, there is no TCP, and both nodes say
// what is the matter.
func TestRDMAOnly(t *testing.T) {
	leaks(t)
	rdma := newTransport(t, func(o *Options) { o.Transport, o.HostID = TransportRDMA, "rdma" })
	plain := tcpTransport(t, 1, func(o *Options) { o.HostID = "plain" })
	for _, tt := range []struct{ from, to *Transport }{{rdma, plain}, {plain, rdma}} {
		l, h := listen(t, tt.to)
		d := tt.from.Dial(h)
		var err error
		await(t, "the refusal", func() bool {
			_, err = d.Poll()
			return err != nil
		})
		for _, want := range []string{"no path between " + tt.from.host + " and " + tt.to.host, "rdma offers RDMA only", "plain TCP only", "Set NCCL_MESH_TRANSPORT=auto on rdma"} {
			if !errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v\nwant %q in it", err, want)
			}
		}
		if err := errors.Join(d.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A node says at its start that it uses TCP although it has RDMA devices, and
// why it can use nothing.
func TestTCPAlthoughRDMA(t *testing.T) {
	leaks(t)
	tests := []struct {
		name   string
		change func(*Options)
		err    string
		warns  string
	}{
		{"TCP wanted", func(o *Options) { o.Transport = TransportTCP }, "", "NCCL_MESH_TRANSPORT is tcp, which rules RDMA out"},
		{"no library", func(o *Options) { o.Libraries = []string{"none.so"} }, "", "cannot load none.so"},
		{"no library, and RDMA wanted", func(o *Options) { o.Libraries, o.Transport = []string{"none.so"}, TransportRDMA }, "NCCL_MESH_TRANSPORT is rdma, which rules TCP out", ""},
		{"no device, and RDMA wanted", func(o *Options) { o.Sysfs, o.Transport = t.TempDir(), TransportRDMA }, "NCCL_MESH_TRANSPORT is rdma, which rules TCP out", ""},
		{"no interface, and TCP wanted", func(o *Options) { o.LaneIfs, _ = topology.ParseInterfaces("=none"); o.Transport = TransportTCP }, "NCCL_MESH_IFNAME", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log captured
			o := testOptions(t)
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
			tt.change(&o)
			tr, err := New(o)
			if err == nil {
				err = tr.Close()
				if log.count("TCP is used, slower than RDMA, although there is ") != 1 || log.count(tt.warns) != 1 {
					t.Errorf("it does not warn of %q", tt.warns)
				}
			}
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

func TestFirstTried(t *testing.T) {
	tests := []struct {
		tried []string
		want  string
	}{
		{[]string{"r0 -> r1: no answer"}, "tried r0 -> r1: no answer"},
		{[]string{"r0 -> r1: no answer", "r0 -> r2: no answer", "r0 -> r3: no answer"}, "tried r0 -> r1: no answer; and 2 more ways, which NCCL_MESH_DEBUG=debug lists"},
	}
	for _, tt := range tests {
		if got := firstTried(tt.tried); got != tt.want {
			t.Errorf("firstTried(%q) = %q, want %q", tt.tried, got, tt.want)
		}
	}
}
