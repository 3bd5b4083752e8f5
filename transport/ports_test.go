package transport

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/transport/path"
	"ncclmesh/transport/topology"
)

// The interfaces that TCP may use are those that the configuration does not exclude,
// for lanes or altogether. Which of them are used package path decides; see its
// TestCandidates.
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
