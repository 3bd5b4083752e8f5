package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"ncclmesh/tools/ncclmesh/doctor/facts"
)

// nameLoopback looks at nodes whose own name leads back to themselves alone, as installers of Debian and Ubuntu leave it.
func nameLoopback(n *facts.Node, v *verdict) {
	host, ok := n.HostName.Get()
	if !ok {
		v.unknown(on(n), n.HostName.Because())
		return
	}
	if len(host.Addrs) == 0 || slices.ContainsFunc(host.Addrs, func(a netip.Addr) bool { return !a.IsLoopback() }) {
		return
	}
	env, _ := n.Process.Env.Get()
	remedy := fmt.Sprintf("put the node's address beside %s in /etc/hosts, or export GLOO_SOCKET_IFNAME with the interface that all nodes share", host.Name)
	if env["MASTER_ADDR"] == host.Name {
		v.warn(on(n), remedy+", and an address in MASTER_ADDR", "MASTER_ADDR=%[1]s, and %[1]s is %[2]s in its /etc/hosts: rank 0 listens where no other node gets to", host.Name, host.Addrs[0])
	} else if env["GLOO_SOCKET_IFNAME"] == "" {
		v.info(on(n), remedy, "%s is %s in its /etc/hosts: Gloo, and whatever else tells other nodes the address of its own name, tells them that one", host.Name, host.Addrs[0])
	}
}

// frameworks are the variables by which frameworks are told the address that they tell other nodes.
var frameworks = []string{"VLLM_HOST_IP", "SGLANG_HOST_IP", "HOST_IP"}

// hostIP looks at the address that vLLM and SGLang tell other nodes, which NCCL_SOCKET_IFNAME does not choose: the one that they
// are told, or else that of the way to the world.
func hostIP(n *facts.Node, v *verdict) {
	env, _ := told(n, v)
	outward, ok := n.Outward.Get()
	if !ok {
		v.unknown(on(n), n.Outward.Because())
	}
	radios, known := n.Wireless.Get()
	if !known {
		v.unknown(on(n), n.Wireless.Because())
	}
	found, _ := n.Topology.Get()
	at := func(a netip.Addr) string {
		for _, l := range found.Links {
			if slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == a }) {
				return l.Name
			}
		}
		return ""
	}
	named := false
	for _, name := range frameworks {
		a, err := netip.ParseAddr(env[name])
		if err != nil {
			continue // unset, or a host name
		}
		named = true
		switch dev := at(a); {
		case dev == "" && len(found.Links) > 0:
			v.fail(on(n), "set it to an address of this node", "%s=%s is no address of the node: other nodes look for it elsewhere", name, a)
		case slices.Contains(radios, dev):
			v.warn(on(n, dev), "set it to an address of a wired interface", "%s=%s is the address of %s, a wireless interface", name, a, dev)
		}
	}
	if dev := at(outward); !named && slices.Contains(radios, dev) {
		severity := Info
		if n.Process.Serves {
			severity = Warn
		}
		v.add(severity, on(n, dev), "export VLLM_HOST_IP and SGLANG_HOST_IP with the address of a wired interface before they start", "vLLM and SGLang tell other nodes %s, of the wireless interface %s, whatever NCCL_SOCKET_IFNAME says", outward, dev)
	}
}
