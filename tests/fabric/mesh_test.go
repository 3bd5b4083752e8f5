package fabric

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTopology(t *testing.T) {
	halves := Mesh{Nodes: []string{"a", "b", "alone"}, Cables: []Cable{{
		Net: netip.MustParsePrefix("192.168.1.0/24"), Rate: 128, Latency: 20,
		Ends: [2]Port{
			{Node: "a", Iface: "p0", Device: "r0", Addr: netip.MustParseAddr("192.168.1.1"), Cage: "q0", Mbps: 50000},
			{Node: "b", Iface: "p0", Addr: netip.MustParseAddr("192.168.1.2")},
		},
	}}}
	tests := []struct {
		name string
		mesh Mesh
		want string
	}{
		{"a ring of two", Ring("a", "b"), `node a
node b
port a rdma-next netdev next addr 192.168.100.1/24
port b rdma-prev netdev prev addr 192.168.100.2/24
port b rdma-next netdev next addr 192.168.101.1/24
port a rdma-prev netdev prev addr 192.168.101.2/24
link a:rdma-next b:rdma-prev mtu 9000
link b:rdma-next a:rdma-prev mtu 9000
`},
		{"the same without RDMA", Ring("a", "b").Plain(), `node a
node b
netif a next addr 192.168.100.1/24
netif b prev addr 192.168.100.2/24
netif b next addr 192.168.101.1/24
netif a prev addr 192.168.101.2/24
link a:next b:prev mtu 9000
link b:next a:prev mtu 9000
`},
		{"all that can be said", halves, `node a
node b
node alone
port a r0 netdev p0 addr 192.168.1.1/24 cage q0 speed 50000M
netif b p0 addr 192.168.1.2/24
link a:r0 b:p0 rate 128MB latency 20us
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.mesh.Topology()); diff != "" {
				t.Errorf("topology (-want +got):\n%s", diff)
			}
		})
	}
	plain, rdma := Ring("a", "b"), Ring("a", "b")
	_ = plain.Plain()
	if diff := cmp.Diff(rdma.Topology(), plain.Topology()); diff != "" {
		t.Errorf("Plain changed the mesh that it was given (-want +got):\n%s", diff)
	}
}
