package netplan

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/transport/topology"
)

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestOwners(t *testing.T) {
	o, err := ReadOwners(tree(t, map[string]string{
		"etc/netplan/70-ncclmesh.yaml":                            "network: {ethernets: {mine: {}}}\n",
		"etc/netplan/50-cloud-init.yaml":                          "network:\n  version: 2\n  renderer: networkd\n  ethernets:\n    enP7s7: {dhcp4: true}\n    wild: {match: {name: 'ens*'}}\n    byMac: {match: {macaddress: '02:00:00:00:00:AA'}, set-name: mgmt}\n  bonds:\n    bond0: {interfaces: [slave0]}\n  vlans:\n    vlan7: {id: 7, link: under}\n",
		"run/netplan/60-list.yaml":                                "network: {ethernets: {x: {match: {name: [one, 'two*']}}}}\n",
		"etc/netplan/off.yaml.disabled":                           "network: {ethernets: {disabled: {}}}\n",
		"etc/systemd/network/10-a.network":                        "[Match]\nName=sysd* other\n#Name=no\n[Network]\nDHCP=yes\n",
		"etc/systemd/network/20-b.network":                        "[Match]\nMACAddress=02:00:00:00:00:bb\n",
		"etc/NetworkManager/system-connections/Home.nmconnection": "[connection]\nid=Home\ninterface-name=nm0\n\n[ipv4]\nmethod=auto\n",
		"etc/NetworkManager/system-connections/Any.nmconnection":  "[connection]\nid=Any\n",
		"etc/network/interfaces":                                  "auto lo\niface lo inet loopback\niface ifup0 inet dhcp\n",
		"etc/network/interfaces.d/x":                              "iface ifup1 inet6 auto\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, mac, want string }{
		{"mine", "", ""}, {"free", "02:00:00:00:00:01", ""}, {"disabled", "", ""}, {"no", "", ""},
		{"enP7s7", "", "/etc/netplan/50-cloud-init.yaml"}, {"ens3", "", "/etc/netplan/50-cloud-init.yaml"}, {"mgmt", "", "/etc/netplan/50-cloud-init.yaml"},
		{"any", "02:00:00:00:00:aa", "/etc/netplan/50-cloud-init.yaml"}, {"slave0", "", "/etc/netplan/50-cloud-init.yaml"}, {"under", "", "/etc/netplan/50-cloud-init.yaml"},
		{"one", "", "/run/netplan/60-list.yaml"}, {"two2", "", "/run/netplan/60-list.yaml"},
		{"sysd1", "", "/etc/systemd/network/10-a.network"}, {"other", "", "/etc/systemd/network/10-a.network"}, {"x9", "02:00:00:00:00:BB", "/etc/systemd/network/20-b.network"},
		{"nm0", "", "/etc/NetworkManager/system-connections/Home.nmconnection"},
		{"ifup0", "", "/etc/network/interfaces"}, {"ifup1", "", "/etc/network/interfaces.d/x"},
	}
	for _, tt := range tests {
		if got := o.Of(tt.name, tt.mac); got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.name, tt.mac, got, tt.want)
		}
	}
	_, err = ReadOwners(tree(t, map[string]string{"etc/netplan/bad.yaml": "network: [\n"}))
	if err == nil || !strings.Contains(err.Error(), "/etc/netplan/bad.yaml") {
		t.Errorf("a file that cannot be read: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("network: {ethernets: {a: {match: {name: [b, 1]}}}}\n")
	f.Add("[Match]\nName=a b\nMACAddress=02::\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func([]byte) ([]claim, error){parseNetplan, parseKeyfile, parseNetworkd, parseInterfaces} {
			claims, _ := parse([]byte(text))
			_ = Owners(claims).Of("a", "02:00:00:00:00:01")
		}
	})
}

func TestChoose(t *testing.T) {
	link := func(index int, name, kind string, addrs ...string) topology.Link {
		l := topology.Link{Name: name, Index: index, Kind: kind, Up: true, Carrier: true, MAC: [6]byte{2, 0, 0, 0, 0, byte(index)}}
		for _, a := range addrs {
			l.Addrs = append(l.Addrs, netip.MustParsePrefix(a))
		}
		return l
	}
	down, dark, gateway := link(8, "down0", "device"), link(9, "dark0", "device"), link(10, "gw0", "device")
	down.Up, dark.Carrier, gateway.Default = false, false, true
	links := []topology.Link{
		link(2, "enP7s7", "device", "192.168.1.4/24"), link(3, "p0", "device", "fe80::1/64", "169.254.3.4/16"), link(4, "p1", "device", "10.176.0.1/30"),
		link(5, "p2", "device", "172.16.0.1/24"), link(6, "docker0", "bridge", "172.17.0.1/16"), link(7, "owned", "device"), down, dark, gateway,
	}
	present := Present{
		Node:       &topology.Node{Links: links},
		Management: map[string]string{"enP7s7": "the default route through 192.168.1.1"},
		Owners:     Owners{{pattern: "owned", file: "/etc/netplan/50-x.yaml"}},
		Own:        []string{"10.176.0.1/30"},
	}
	rdma := present
	rdma.Node = &topology.Node{Links: links, Ports: []topology.Port{{Device: "rocep1s0f0", Netdev: "p1"}, {Device: "ibp1", Netdev: ""}}}
	tests := []struct {
		name    string
		present Present
		named   []string
		want    []string
		left    string
		err     string
	}{
		{"all adapters", present, nil, []string{"p0", "p1"}, "enP7s7 carries the default route through 192.168.1.1\n" +
			"p2 has 172.16.0.1/24, which something else gave it: remove that first\nowned is configured by /etc/netplan/50-x.yaml\n" +
			"down0 is down: ip link set down0 up, then try again\ndark0 has no carrier: nothing is plugged in, or the other end is down\ngw0 carries a default route\n", ""},
		{"of RDMA ports", rdma, nil, []string{"p1"}, "", ""},
		{"named", rdma, []string{"p0"}, []string{"p0"}, "", ""},
		{"no such", present, []string{"p9"}, nil, "", "--interface p9: there is no such interface; there are enP7s7, p0,"},
		{"the management's", present, []string{"enP7s7"}, nil, "", "--interface enP7s7: carries the default route"},
		{"another's", present, []string{"owned"}, nil, "", "configured by /etc/netplan/50-x.yaml"},
		{"a bridge", present, []string{"docker0"}, nil, "", "of kind bridge"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			chosen, left, err := tt.present.Choose(tt.named)
			var names []string
			for _, l := range chosen {
				names = append(names, l.Name)
			}
			said := ""
			for _, l := range left {
				said += l.Link + " " + l.Why + "\n"
			}
			if diff := cmp.Diff(tt.want, names); diff != "" {
				t.Errorf("chosen (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.left, said); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
			if (tt.err != "") != (err != nil) || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}
