package topology

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBootstrapAddrs(t *testing.T) {
	spark := []string{
		"link 1 lo device up carrier 127.0.0.1/8 ::1/128 loopback",
		"link 2 wlP9s9 device up carrier 192.168.178.30/24 fe80::9/64",
		"link 3 enP7s7 device up carrier 10.10.0.11/16 2001:db8:7::11/64 fe80::7/64 169.254.7.7/16",
		"link 4 enp1s0f0np0 device up carrier 169.254.1.1/16 fe80::1/64",
		"link 5 enp1s0f1np1 device up carrier 192.168.2.1/24 2001:db8:2::1/64",
		"link 6 enP2p1s0f0np0 device up 192.168.3.1/24",
		"link 7 docker0 bridge up carrier 172.17.0.1/16",
		"link 8 br-0123456789ab bridge up carrier 172.18.0.1/16",
	}
	mesh := map[string]bool{"enp1s0f0np0": true, "enp1s0f1np1": true, "enP2p1s0f0np0": true}
	lo := spark[:1]
	tests := []struct {
		name   string
		links  []string
		filter string
		family int
		mesh   map[string]bool
		want   []string
	}{
		{"nothing said: the first interface outside the mesh", spark, "", 0, mesh,
			[]string{"192.168.178.30", "192.168.2.1", "169.254.1.1", "10.10.0.11", "169.254.7.7", "2001:db8:2::1", "2001:db8:7::11"}},
		{"the interface that NCCL is told to use; no other outside the mesh", spark, "enP7s7", 0, mesh,
			[]string{"10.10.0.11", "2001:db8:7::11", "169.254.7.7", "192.168.2.1", "169.254.1.1", "2001:db8:2::1"}},
		{"IPv6", spark, "=enP7s7", 6, mesh, []string{"2001:db8:7::11", "192.168.2.1", "169.254.1.1", "2001:db8:2::1"}},
		{"IPv4", spark, "=enP7s7", 4, mesh, []string{"10.10.0.11", "169.254.7.7", "192.168.2.1", "169.254.1.1", "2001:db8:7::11", "2001:db8:2::1"}},
		{"excluded", spark, "^wl", 0, mesh, []string{"10.10.0.11", "2001:db8:7::11", "169.254.7.7", "192.168.2.1", "169.254.1.1", "2001:db8:2::1"}},
		{"a mesh interface by name", spark, "enp1s0f1", 0, mesh, []string{"192.168.2.1", "2001:db8:2::1", "169.254.1.1"}},
		{"a bridge by name", spark, "docker", 0, mesh, []string{"172.17.0.1", "192.168.2.1", "169.254.1.1", "2001:db8:2::1"}},
		{"a name that nothing has", spark, "eth9", 0, mesh, []string{"192.168.2.1", "169.254.1.1", "2001:db8:2::1"}},
		{"mesh alone", spark[3:6], "", 0, mesh, []string{"192.168.2.1", "169.254.1.1", "2001:db8:2::1"}},
		{"loopback alone", lo, "", 0, nil, []string{"127.0.0.1", "::1"}},
		{"loopback alone, IPv6", lo, "", 6, nil, []string{"::1"}},
		{"loopback and a bridge to containers", []string{spark[0], spark[6]}, "", 0, nil, []string{"127.0.0.1", "::1"}},
		{"loopback by name", spark, "lo", 4, mesh, []string{"127.0.0.1", "192.168.2.1", "169.254.1.1", "::1", "2001:db8:2::1"}},
		{"link-local IPv6 alone is nothing", []string{"link 2 eth0 device up carrier fe80::1/64"}, "", 0, nil, nil},
		{"one address on two interfaces", []string{"link 2 a device up carrier 10.0.0.1/24", "link 3 b device up carrier 10.0.0.1/24"}, "", 0, nil, []string{"10.0.0.1"}},
		{"nothing", nil, "", 0, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := ParseInterfaces(tt.filter)
			if err != nil {
				t.Fatal(err)
			}
			var links []Link
			for _, s := range tt.links {
				links = append(links, parseLink(t, s))
			}
			var got []string
			for _, a := range BootstrapAddrs(links, f, tt.family, tt.mesh) {
				got = append(got, a.String())
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}
