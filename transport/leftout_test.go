package transport

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/topology"
)

// twoCages is a node with two RDMA ports, their interfaces, and a management network.
func twoCages() *topology.Node {
	n := &topology.Node{}
	for i, name := range []string{"p0", "p1", "eth0"} {
		v4 := netip.MustParsePrefix(fmt.Sprintf("10.0.%d.1/24", i))
		plain := topology.Port{
			Netdev: name, Active: true, State: "UP", Addrs: []netip.Prefix{v4}, LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET,
			GIDs: []topology.Address{{Addr: netip.AddrFrom16(v4.Addr().As16()), Type: topology.GIDTypeNone, PrefixLen: 24}},
		}
		n.Plain = append(n.Plain, plain)
		n.Links = append(n.Links, topology.Link{Name: name, Index: i + 1, Up: true, Carrier: true, Addrs: plain.Addrs})
		if name == "eth0" {
			continue
		}
		local := netip.MustParseAddr(fmt.Sprintf("fe80::%d", i+1))
		rdma := plain
		rdma.Device, rdma.Num, rdma.State = fmt.Sprintf("rdma%d", i), 1, "ACTIVE"
		rdma.GIDs = []topology.Address{
			{Index: 1, Addr: local, Type: topology.GIDTypeRoCEv2, Netdev: name, PrefixLen: 64},
			{Index: 3, Addr: plain.GIDs[0].Addr, Type: topology.GIDTypeRoCEv2, Netdev: name, PrefixLen: 24},
		}
		n.Ports = append(n.Ports, rdma)
	}
	return n
}

func hcaOf(t *testing.T, s string) topology.HCAFilter {
	t.Helper()
	f, err := topology.ParseHCA(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func interfacesOf(t *testing.T, s string) topology.IfFilter {
	t.Helper()
	f, err := topology.ParseInterfaces(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The settings that exclude ports of a node are reported with those ports.
func TestLeftOut(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Options)
		want   []string // name=value: ports
	}{
		{"none", func(*Options) {}, nil},
		{"a filter that leaves nothing out", func(o *Options) { o.HCA = hcaOf(t, "rdma") }, nil},
		{"devices", func(o *Options) { o.HCA = hcaOf(t, "=rdma1") }, []string{"NCCL_IB_HCA==rdma1: rdma0:1 (p0)"}},
		{"all but devices", func(o *Options) { o.HCA = hcaOf(t, "^rdma1:1") }, []string{"NCCL_IB_HCA=^rdma1:1: rdma1:1 (p1)"}},
		{"TCP alone", func(o *Options) { o.Transport, o.HCA = TransportTCP, hcaOf(t, "rdma1") }, []string{"NCCL_MESH_TRANSPORT=tcp: rdma0:1 (p0), rdma1:1 (p1)"}},
		{"RDMA alone", func(o *Options) { o.Transport, o.LaneIfs = TransportRDMA, interfacesOf(t, "p0") }, []string{"NCCL_MESH_TRANSPORT=rdma: TCP"}},
		{"interfaces", func(o *Options) { o.LaneIfs = interfacesOf(t, "p") }, []string{"NCCL_MESH_IFNAME=p: eth0"}},
		{"interfaces for set-up that are named", func(o *Options) { o.Interfaces = interfacesOf(t, "eth0") }, nil},
		{"interfaces for set-up that are excluded", func(o *Options) { o.Interfaces = interfacesOf(t, "^p1") }, []string{"NCCL_SOCKET_IFNAME=^p1: p1"}},
		{"an index", func(o *Options) { o.GIDs.Index = 3 }, []string{"NCCL_IB_GID_INDEX=3: fe80::1 of rdma0:1, fe80::2 of rdma1:1"}},
		{"an index that there is not", func(o *Options) { o.GIDs.Index = 7 }, []string{"NCCL_IB_GID_INDEX=7: rdma0:1, rdma1:1"}},
		{"a range", func(o *Options) { o.GIDs.Range, o.HCA = netip.MustParsePrefix("10.0.0.0/23"), hcaOf(t, "rdma0") },
			[]string{"NCCL_IB_HCA=rdma0: rdma1:1 (p1)", "NCCL_IB_ADDR_RANGE=10.0.0.0/23: fe80::1 of rdma0:1, eth0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{}
			o.GIDs = topology.AnyGID
			tt.change(&o)
			var got []string
			for _, s := range o.leftOut(twoCages()) {
				got = append(got, s.Name+"="+s.Value+": "+s.LeftOut)
				if s.Rule != handshake.RuleOwn {
					t.Errorf("%+v is compared with a peer's", s)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	many := twoCages()
	for i := range 20 {
		many.Ports = append(many.Ports, topology.Port{Device: fmt.Sprintf("x%d", i), Num: 1})
	}
	if got := (&Options{GIDs: topology.AnyGID, HCA: hcaOf(t, "rdma")}).leftOut(many); len(got) != 1 || !strings.HasSuffix(got[0].LeftOut, "x7:1 and 12 more") {
		t.Errorf("of many: %+v", got)
	}
}

// A filter that excludes every RDMA port of a node is an error; one on a node without RDMA ports is a warning.
func TestFiltersThatMatchNothing(t *testing.T) {
	const remedy = ": correct it, unset it to use all, or set NCCL_MESH_TRANSPORT=tcp to do without RDMA"
	plain := &topology.Node{Plain: twoCages().Plain, Links: twoCages().Links}
	tests := []struct {
		name      string
		node      *topology.Node
		change    func(*Options)
		err, warn string
	}{
		{"none", twoCages(), func(*Options) {}, "", ""},
		{"one that matches", twoCages(), func(o *Options) { o.HCA = hcaOf(t, "mlx5_0,rdma1") }, "", ""},
		{"names of another node", twoCages(), func(o *Options) { o.HCA = hcaOf(t, "mlx5_0:1,mlx5_1:1") },
			"NCCL_IB_HCA=mlx5_0:1,mlx5_1:1 matches none of the RDMA ports of this node, which are rdma0:1 (p0), rdma1:1 (p1)" + remedy, ""},
		{"a port that there is not", twoCages(), func(o *Options) { o.HCA = hcaOf(t, "rdma0:2") },
			"NCCL_IB_HCA=rdma0:2 matches none of the RDMA ports of this node, which are rdma0:1 (p0), rdma1:1 (p1)" + remedy, ""},
		{"all excluded", twoCages(), func(o *Options) { o.HCA = hcaOf(t, "^rdma") },
			"NCCL_IB_HCA=^rdma matches none of the RDMA ports of this node, which are rdma0:1 (p0), rdma1:1 (p1)" + remedy, ""},
		{"TCP wanted", twoCages(), func(o *Options) { o.HCA, o.Transport = hcaOf(t, "mlx5_0"), TransportTCP }, "", ""},
		{"no RDMA port", plain, func(o *Options) { o.HCA = hcaOf(t, "mlx5_0") }, "", "NCCL_IB_HCA=mlx5_0 has no effect: this node has no RDMA port"},
		{"no RDMA port to exclude", plain, func(o *Options) { o.HCA = hcaOf(t, "^mlx5_0") }, "", ""},
		{"no such interface", twoCages(), func(o *Options) { o.LaneIfs = interfacesOf(t, "eth7") }, "",
			"NCCL_MESH_IFNAME=eth7 matches none of the interfaces of this node, which are p0, p1, eth0: nothing goes over TCP"},
		{"no such interface, and no TCP", twoCages(), func(o *Options) { o.LaneIfs, o.Transport = interfacesOf(t, "eth7"), TransportRDMA }, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			tr := &Transport{log: slog.New(slog.NewTextHandler(&log, nil))}
			tt.change(&tr.opts)
			err := tr.checkFilters(tt.node)
			if tt.err == "" && err != nil || tt.err != "" && (!errors.Is(err, fault.ErrUsage) || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if said := log.String(); tt.warn == "" && said != "" || !strings.Contains(said, tt.warn) {
				t.Errorf("log %q, want %q", said, tt.warn)
			}
		})
	}
}

// An interface filter that leaves no interface for the control plane is an error that names it and the interfaces.
func TestNoInterfaceForSetUp(t *testing.T) {
	o := Options{Interfaces: interfacesOf(t, "=eth7")}
	_, err := o.setUpAddrs(twoCages(), map[string]bool{"p0": true})
	if err != nil {
		t.Errorf("the interfaces of the mesh would have done: %v", err)
	}
	n := twoCages()
	n.Links = nil
	_, err = o.setUpAddrs(n, nil)
	if want := "NCCL_SOCKET_IFNAME==eth7 selects no interface that is up and has an address at which another node could reach this one; there are p0, p1, eth0"; !errors.Is(err, fault.ErrUsage) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	o.LaneIfs = interfacesOf(t, "x")
	if got, want := o.noInterface(n.Plain), "none of the network interfaces of this node (p0, p1, eth0) is up, has an address and is selected by NCCL_SOCKET_IFNAME==eth7 and NCCL_MESH_IFNAME=x"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
