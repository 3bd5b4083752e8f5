package transport

import (
	"bytes"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/path"
	"ncclmesh/transport/topology"
)

// TCP may use the interfaces that the configuration does not exclude, for lanes or altogether. Package path decides
// which of them are used; see its TestCandidates.
func TestLaneInterfaces(t *testing.T) {
	plain := func(name, addr string) topology.Port {
		p := netip.MustParsePrefix(addr)
		return topology.Port{Netdev: name, LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET, Active: true, LinkMbps: 1000, Addrs: []netip.Prefix{p},
			GIDs: []topology.Address{{Addr: netip.AddrFrom16(p.Addr().As16()), Type: topology.GIDTypeNone, Netdev: name, PrefixLen: p.Bits()}}}
	}
	node := topology.Node{Plain: []topology.Port{plain("mgmt", "10.0.0.1/24"), plain("p0", "192.168.1.1/24")}}
	tests := []struct {
		name, control, lanes string
		want                 []string
	}{
		{"nothing said", "", "", []string{"mgmt", "p0"}},
		{"named for control", "mgmt", "", []string{"mgmt", "p0"}},
		{"named for both", "mgmt", "=mgmt", []string{"mgmt"}},
		{"excluded from control", "^mgmt", "", []string{"p0"}},
		{"excluded from lanes", "", "^mgmt", []string{"p0"}},
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
			tr := &Transport{opts: Options{Sysfs: t.TempDir(), Interfaces: control, LaneIfs: lanes}}
			if err := tr.openPlain(&node); err != nil {
				t.Error(err)
			}
			var got []string
			for _, p := range path.Now(tr.ports) {
				got = append(got, p.Netdev)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("interfaces (-want +got):\n%s", diff)
			}
		})
	}
}

// A process waits at its start for a port while all selected ports are down, not longer than LaneWait, and not at all
// if none can come up.
func TestAwaitPorts(t *testing.T) {
	const laneWait = 10 * time.Second
	never := time.Duration(1<<63 - 1)
	rdma := topology.Port{Device: "rdma0", Num: 1, Netdev: "p0", State: "DOWN"}
	plain := topology.Port{Netdev: "p0", LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET, State: "DOWN", IfIndex: 2, NodeGUID: 1, Addrs: []netip.Prefix{netip.MustParsePrefix("192.168.1.1/24")}}
	mgmt := topology.Port{Netdev: "mgmt", LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET, Active: true, State: "UP", IfIndex: 3, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}
	tests := []struct {
		name   string
		change func(*Options)
		node   topology.Node
		up     time.Duration // when the first port of each kind is
		want   time.Duration
		says   string // which are waited for
	}{
		{"up", func(o *Options) { o.Transport = TransportRDMA }, topology.Node{Ports: []topology.Port{rdma}}, 0, 0, ""},
		{"up after 2.5 s", func(o *Options) { o.Transport = TransportRDMA }, topology.Node{Ports: []topology.Port{rdma}, Plain: []topology.Port{plain, mgmt}}, 2500 * time.Millisecond, 2500 * time.Millisecond, "rdma0:1 (p0)"},
		{"never", func(o *Options) { o.Transport = TransportRDMA }, topology.Node{Ports: []topology.Port{rdma}}, never, laneWait, "rdma0:1 (p0)"},
		{"scaled", func(o *Options) { o.Transport, o.TimeScale = TransportRDMA, 2 }, topology.Node{Ports: []topology.Port{rdma}}, never, 2 * laneWait, "rdma0:1 (p0)"},
		{"RDMA down, and TCP up", func(*Options) {}, topology.Node{Ports: []topology.Port{rdma}, Plain: []topology.Port{plain, mgmt}}, never, 0, ""},
		{"both down", func(*Options) {}, topology.Node{Ports: []topology.Port{rdma}, Plain: []topology.Port{plain}}, time.Second, time.Second, "rdma0:1 (p0), p0"},
		{"TCP only", func(o *Options) { o.Transport = TransportTCP }, topology.Node{Ports: []topology.Port{rdma}, Plain: []topology.Port{plain}}, time.Second, time.Second, "p0"},
		{"none can come up", func(o *Options) { o.Transport = TransportRDMA }, topology.Node{Plain: []topology.Port{plain}}, never, 0, ""},
		{"the one that is down is left out", func(o *Options) { o.HCA, _ = topology.ParseHCA("rdma1") }, topology.Node{Ports: []topology.Port{rdma}}, never, 0, ""},
		{"a process that looks", func(o *Options) { o.Transport, o.Observes = TransportRDMA, true }, topology.Node{Ports: []topology.Port{rdma}}, never, 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				o := Options{Sysfs: t.TempDir(), LaneWait: laneWait, Log: slog.New(slog.NewTextHandler(&log, nil))}
				tt.change(&o)
				o = o.withDefaults()
				tr := &Transport{opts: o, log: o.Log, env: conn.Env{Clock: o.Machine.Clock}}
				begun := time.Now()
				_, err := tr.awaitPorts(func() (*topology.Node, error) {
					n := topology.Node{Ports: slices.Clone(tt.node.Ports), Plain: slices.Clone(tt.node.Plain)}
					if time.Since(begun) >= tt.up {
						for _, ports := range [][]topology.Port{n.Ports, n.Plain} {
							if len(ports) > 0 {
								ports[0].Active = true
							}
						}
					}
					return &n, nil
				})
				if took := time.Since(begun); err != nil || took != tt.want {
					t.Errorf("it waits for %v, %v; want %v", took, err, tt.want)
				}
				if said := log.String(); strings.Count(said, "no port is up: waiting for one of "+tt.says) != min(len(tt.says), 1) {
					t.Errorf("it says %q, want %q", said, tt.says)
				}
			})
		})
	}
}
