package transport

import (
	"net/netip"
	"testing"

	"ncclmesh/transport/topology"
)

// The log line of a port's change shows the change.
func TestChangeText(t *testing.T) {
	was := topology.Port{Device: "rdma0", Num: 1, Netdev: "p0", State: "ACTIVE", LinkMbps: 100000,
		Addrs: []netip.Prefix{netip.MustParsePrefix("192.168.1.1/24")}}
	const line = "rdma0:1 (p0) RoCE ACTIVE, link 100 Gb/s, no usable address"
	tests := []struct {
		name   string
		change func(*topology.Port)
		want   string
	}{
		{"shown", func(s *topology.Port) { s.State = "DOWN" }, "rdma0:1 (p0) RoCE DOWN, link 100 Gb/s, no usable address"},
		{"not shown", func(s *topology.Port) { s.Addrs = append(s.Addrs[:1:1], netip.MustParsePrefix("fe80::1/64")) },
			line + ", as before, but Addrs were [192.168.1.1/24] and are [192.168.1.1/24 fe80::1/64]"},
		{"the device's", func(*topology.Port) {}, line + ", as before, but what its device reports"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			now := was
			tt.change(&now)
			if got := changeText(&now, &was, topology.AnyGID); got != tt.want {
				t.Errorf("text %q, want %q", got, tt.want)
			}
		})
	}
}
