package path

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/transport/discovery"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/tcp"
	"ncclmesh/transport/topology"
)

// A network that is not a cable to the peer only carries lanes only if nothing else works or the user has named
// it, and the network of the control plane is the last choice. The ports are those that package transport opens
// in each case; see its TestLaneInterfaces.
func TestCandidates(t *testing.T) {
	plain := func(name, addr string, mbps int) topology.Port {
		p := netip.MustParsePrefix(addr)
		return topology.Port{Netdev: name, LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET, Active: true, LinkMbps: mbps, Addrs: []netip.Prefix{p},
			GIDs: []topology.Address{{Addr: netip.AddrFrom16(p.Addr().As16()), Type: topology.GIDTypeNone, Netdev: name, PrefixLen: p.Bits()}}}
	}
	mgmt := [2]topology.Port{plain("mgmt", "10.0.0.1/24", 1000), plain("mgmt", "10.0.0.2/24", 1000)}
	cable := [2]topology.Port{plain("p0", "192.168.1.1/24", 1000), plain("q0", "192.168.1.2/24", 1000)}
	fast := [2]topology.Port{plain("p1", "192.168.2.1/24", 100000), plain("q1", "192.168.2.2/24", 100000)}
	unknown := [2]topology.Port{plain("vir", "10.9.0.1/24", 0), plain("vir", "10.9.0.2/24", 0)}
	tunnel := [2]topology.Port{plain("tun", "10.8.0.1/24", 0), plain("tun", "10.8.0.2/24", 0)}
	uplink := mgmt
	uplink[0].Default = true
	type ends = map[string]discovery.End
	tests := []struct {
		name, control, lanes string
		ports                [][2]topology.Port
		ends                 ends
		sameNode             bool
		want                 [3][]string // over cables, over shared networks, over the network for setting up
	}{
		{"nothing said", "", "", [][2]topology.Port{mgmt, cable}, nil, false, [3][]string{{"mgmt", "p0"}}},
		{"named for control", "mgmt", "", [][2]topology.Port{mgmt, cable}, nil, false, [3][]string{{"p0"}, nil, {"mgmt"}}},
		{"named for control, and nothing else", "mgmt", "", [][2]topology.Port{mgmt}, nil, false, [3][]string{nil, nil, {"mgmt"}}},
		{"named for both", "mgmt", "=mgmt", [][2]topology.Port{mgmt}, nil, false, [3][]string{{"mgmt"}}},
		{"excluded from control", "^mgmt", "", [][2]topology.Port{cable}, nil, false, [3][]string{{"p0"}}},
		{"a slow network beside a fast one", "", "", [][2]topology.Port{mgmt, cable, fast}, nil, false, [3][]string{{"p1"}}},

		{"a speed that is not known", "", "", [][2]topology.Port{unknown, cable, fast}, nil, false, [3][]string{{"p1"}, {"vir"}}},
		{"a speed that is not known, and the peer alone at its end", "", "", [][2]topology.Port{unknown, cable}, ends{"vir": discovery.EndPeer}, false, [3][]string{{"vir"}}},
		{"no speed that is known", "", "", [][2]topology.Port{unknown, tunnel}, nil, false, [3][]string{nil, {"vir", "tun"}}},
		{"no speed that is known, and the peer alone at one end", "", "", [][2]topology.Port{unknown, tunnel}, ends{"vir": discovery.EndPeer}, false, [3][]string{{"vir"}, {"tun"}}},
		{"a speed that is not known, on one node", "", "", [][2]topology.Port{unknown}, nil, true, [3][]string{{"vir"}}},
		{"a speed that is not known, named for lanes", "", "vir,p", [][2]topology.Port{unknown, cable}, nil, false, [3][]string{{"vir"}}},
		{"a default route", "", "", [][2]topology.Port{uplink, cable}, nil, false, [3][]string{{"p0"}, {"mgmt"}}},
		{"a default route over the cable to the peer", "", "", [][2]topology.Port{uplink}, ends{"mgmt": discovery.EndPeer}, false, [3][]string{{"mgmt"}}},
		{"several nodes on a network", "", "", [][2]topology.Port{mgmt, cable}, ends{"mgmt": discovery.EndSeveral, "p0": discovery.EndPeer}, false, [3][]string{{"p0"}, {"mgmt"}}},
		{"a cable to another node", "", "", [][2]topology.Port{mgmt, cable}, ends{"mgmt": discovery.EndPeer, "p0": discovery.EndOther}, false, [3][]string{{"mgmt"}, {"p0"}}},
		{"several nodes on a network, and it is named for lanes", "", "mgmt,p0", [][2]topology.Port{mgmt, cable}, ends{"mgmt": discovery.EndSeveral}, false, [3][]string{{"mgmt", "p0"}}},
		{"a slow one among the shared", "", "", [][2]topology.Port{mgmt, fast}, ends{"mgmt": discovery.EndSeveral, "p1": discovery.EndSeveral}, false, [3][]string{nil, {"p1"}}},
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
			var remote []topology.Port
			for i, p := range tt.ports {
				f.Ports, remote = append(f.Ports, lane.Port(tcp.NewPort(p[0], uint8(i), tcp.Options{}))), append(remote, p[1])
			}
			ports, peer := f.now(), topology.Describe(remote, topology.AnyGID)
			queuePairs, all := f.candidates(ports, peer)
			if len(queuePairs) > 0 {
				t.Errorf("%d candidates for queue pairs", len(queuePairs))
			}
			sorted := f.sort(all, ports, peer, tt.ends, tt.sameNode)
			var got [3][]string
			for g, candidates := range [][]topology.Candidate{sorted.cables, sorted.shared, sorted.setup} {
				for _, c := range candidates {
					got[g] = append(got[g], f.Ports[c.Local].Now().Netdev)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("interfaces of the lanes (-want +got):\n%s", diff)
			}
			if doubt := got[0] == nil && slices.Contains(got[1], "vir"); sorted.uncertain != doubt {
				t.Errorf("doubt %v, want %v: only an interface of unknown speed at which nobody answers may be a cable yet", sorted.uncertain, doubt)
			}
		})
	}
}
