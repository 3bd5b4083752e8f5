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
			if !c.internal() {
				name = append(name, fmt.Sprintf("rename %s %s", m.mac(machine, i), e.Iface))
			}
			rdma = append(rdma, fmt.Sprintf("link add %s type rxe netdev %s", e.Device, e.Iface))
			wait = append(wait, fmt.Sprintf("active %s %s %s", e.Device, e.Iface, gidSuffix(e)))
		}
	}
	if len(m.Machines) > 1 {
		name = append(name, fmt.Sprintf("rename %s %s", m.mac(machine, managementLink), ManagementIface))
		ip = append(ip,
			fmt.Sprintf("addr add %s/%d dev %s", m.ManagementAddr(machine), managementNet.Bits(), ManagementIface),
			fmt.Sprintf("link set %s up", ManagementIface))
	}
	ip = append(ip, m.internalCables(machine)...)
	for _, c := range m.Cables {
		for _, e := range c.Ends {
			if e.Machine == machine && !c.internal() {
				ip = append(ip,
					fmt.Sprintf("addr add %s/%d dev %s", e.Addr, c.Net.Bits(), e.Iface),
					fmt.Sprintf("link set %s mtu %d up", e.Iface, cableMTU))
			}
		}
	}

	var b strings.Builder
	fmt.Fprintf(&b, "set -e\n. /lab/lib.sh\n")
	fmt.Fprintf(&b, "cat > /etc/hosts <<END\n127.0.0.1 localhost\n%sEND\n", m.hosts())
	fmt.Fprintf(&b, "%s\n", strings.Join(append(name, m.settings(machine)...), "\n"))
	fmt.Fprintf(&b, "ip -batch - <<END\n%s\nEND\n", strings.Join(ip, "\n"))
	fmt.Fprintf(&b, "cat > /run/rdma.batch <<END\n%s\nEND\nrdma -b /run/rdma.batch\n", strings.Join(rdma, "\n"))
	fmt.Fprintf(&b, "%s\n", strings.Join(wait, "\n"))
	return b.String()
}

// settings returns the commands that let a machine with both ends of a cable accept packets from its own addresses, each only at
// the port that has it. They hold for interfaces made later.
func (m Mesh) settings(machine string) []string {
	var set []string
	for _, c := range m.Cables {
		if !c.internal() || c.Ends[0].Machine != machine {
			continue
		}
		for _, s := range []string{"rp_filter 0", "accept_local 1", "arp_ignore 1"} {
			name, value, _ := strings.Cut(s, " ")
			for _, scope := range []string{"all", "default"} {
				set = append(set, fmt.Sprintf("echo %s >/proc/sys/net/ipv4/conf/%s/%s", value, scope, name))
			}
		}
		return set
	}
	return nil
}

// internalCables returns the ip commands for cables with both ends in this machine. A packet to an address of the machine itself
// would go by way of lo, and the RDMA driver would hand it to the device it came from. So the local table is looked up
// after the rules below: what leaves by a port is routed by that port's own table, where only its own address is local; what
// arrives at it is still local.
func (m Mesh) internalCables(machine string) []string {
	var ip []string
	table := 100
	for _, c := range m.Cables {
		if !c.internal() || c.Ends[0].Machine != machine {
			continue
		}
		if ip == nil {
			ip = append(ip, "rule add pref 100 lookup local", "rule del pref 0")
		}
		ip = append(ip, fmt.Sprintf("link add %s type veth peer name %s", c.Ends[0].Iface, c.Ends[1].Iface))
		for _, e := range c.Ends {
			ip = append(ip,
				fmt.Sprintf("addr add %s/%d dev %s", e.Addr, c.Net.Bits(), e.Iface),
				fmt.Sprintf("link set %s mtu %d up", e.Iface, cableMTU),
				fmt.Sprintf("rule add pref 10 iif %s lookup local", e.Iface))
		}
		for _, e := range c.Ends { // a route needs its interface up, and a veth is up only when both ends are
			table++
			ip = append(ip,
				fmt.Sprintf("rule add pref 20 oif %s lookup %d", e.Iface, table),
				fmt.Sprintf("route add local %s dev %s table %d", e.Addr, e.Iface, table),
				fmt.Sprintf("route add %s dev %s src %s table %d", c.Net, e.Iface, e.Addr, table))
		}
	}
	return ip
}

// hosts is the /etc/hosts of the mesh: host names are management addresses.
func (m Mesh) hosts() string {
	if len(m.Machines) == 1 {
		return "127.0.0.1 " + Host(m.Machines[0]) + "\n"
	}
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
