package lab

import (
	"fmt"
	"strings"
)

// setup returns the script that turns a freshly booted machine into a node of the mesh: names, addresses, RDMA devices. It
// ends when every port is active and has the GID of its address. Starting a program costs 30 to 50 ms under emulation, hence
// the batches.
func (m Mesh) setup(machine string) string {
	var name, ip, rdma, wait []string
	ip = append(ip, "link set lo up")
	for i, c := range m.Cables {
		for _, e := range c.Ends {
			if e.Machine != machine {
				continue
			}
			name = append(name, fmt.Sprintf("rename %s %s", m.mac(machine, i), e.Iface))
			rdma = append(rdma, fmt.Sprintf("link add %s type rxe netdev %s", e.Device, e.Iface))
			wait = append(wait, fmt.Sprintf("active %s %s %s", e.Device, e.Iface, gidSuffix(e)))
		}
	}
	name = append(name, fmt.Sprintf("rename %s %s", m.mac(machine, managementLink), ManagementIface))
	ip = append(ip,
		fmt.Sprintf("addr add %s/%d dev %s", m.ManagementAddr(machine), managementNet.Bits(), ManagementIface),
		fmt.Sprintf("link set %s up", ManagementIface))
	for _, c := range m.Cables {
		for _, e := range c.Ends {
			if e.Machine == machine {
				ip = append(ip,
					fmt.Sprintf("addr add %s/%d dev %s", e.Addr, c.Net.Bits(), e.Iface),
					fmt.Sprintf("link set %s mtu %d up", e.Iface, cableMTU))
			}
		}
	}

	var b strings.Builder
	fmt.Fprintf(&b, "set -e\n. /lab/lib.sh\n")
	fmt.Fprintf(&b, "cat > /etc/hosts <<END\n127.0.0.1 localhost\n%sEND\n", m.hosts())
	fmt.Fprintf(&b, "%s\n", strings.Join(name, "\n"))
	fmt.Fprintf(&b, "ip -batch - <<END\n%s\nEND\n", strings.Join(ip, "\n"))
	fmt.Fprintf(&b, "cat > /run/rdma.batch <<END\n%s\nEND\nrdma -b /run/rdma.batch\n", strings.Join(rdma, "\n"))
	fmt.Fprintf(&b, "%s\n", strings.Join(wait, "\n"))
	return b.String()
}

// hosts is the /etc/hosts of the mesh: host names are management addresses.
func (m Mesh) hosts() string {
	var b strings.Builder
	for _, n := range m.Machines {
		fmt.Fprintf(&b, "%s %s\n", m.ManagementAddr(n), Host(n))
	}
	return b.String()
}

// gidSuffix is how the GID of a port's IPv4 address ends in sysfs.
func gidSuffix(e End) string {
	a := e.Addr.As4()
	return fmt.Sprintf("ffff:%02x%02x:%02x%02x", a[0], a[1], a[2], a[3])
}
