package path

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/tcp"
	"ncclmesh/transport/topology"
)

// The network that sets connections up carries lanes only when nothing else does,
// or when the user says so. The ports are those that package transport opens then;
// see its TestLaneInterfaces.
func TestCandidates(t *testing.T) {
	plain := func(name, addr string, mbps int) topology.Port {
		p := netip.MustParsePrefix(addr)
		return topology.Port{Netdev: name, LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET, Active: true, LinkMbps: mbps, Addrs: []netip.Prefix{p},
			GIDs: []topology.Address{{Addr: netip.AddrFrom16(p.Addr().As16()), Type: topology.GIDTypeNone, Netdev: name, PrefixLen: p.Bits()}}}
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
		{"named for both", "mgmt", "=mgmt", [][2]topology.Port{mgmt}, []string{"mgmt"}, nil},
		{"excluded from control", "^mgmt", "", [][2]topology.Port{cable}, []string{"p0"}, nil},
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
			f := NewFinder(Config{GIDs: topology.AnyGID, Interfaces: control, LaneIfs: lanes})
			var peer []topology.Port
			for i, p := range tt.ports {
				f.Ports, peer = append(f.Ports, lane.Port(tcp.NewPort(p[0], uint8(i), tcp.Options{}))), append(peer, p[1])
			}
			var got [3][]string
			for g, candidates := range f.candidates(f.now(), topology.Describe(peer, topology.AnyGID)) {
				for _, c := range candidates {
					got[g] = append(got[g], f.Ports[c.Local].Now().Netdev)
				}
			}
			if diff := cmp.Diff([3][]string{nil, tt.want, tt.last}, got); diff != "" {
				t.Errorf("interfaces of the lanes (-want +got):\n%s", diff)
			}
		})
	}
}
