package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/transport/topology"
)

func gidNone(n *facts.Node, v *verdict) {
	ports, ok := rdmaPorts(n, v)
	if !ok {
		return
	}
	for _, p := range roce(ports) {
		if len(p.RankGIDs(topology.AnyGID)) == 0 {
			v.fail(on(n, facts.PortName(&p)), "give "+p.Netdev+" an address again, and keep its IPv6 link-local one (sysctl net.ipv6.conf.IFACE.disable_ipv6=0)", "%s has no usable GID", p.String())
		}
	}
}

// pinned are the variables that pin a GID's index.
var pinned = []string{"NCCL_IB_GID_INDEX", "NCCL_MESH_GID_INDEX"}

func gidPinnedEmpty(n *facts.Node, v *verdict) {
	eachPinned(n, v, func(name, value string) {
		if strings.TrimSpace(value) == "" {
			v.warn(on(n), "unset it: an empty value is not the same", "%s is set and empty, which NCCL's own transport reads as 0", name)
		}
	})
}

func gidPinned(n *facts.Node, v *verdict) {
	ports, ok := rdmaPorts(n, v)
	if !ok {
		return
	}
	eachPinned(n, v, func(name, value string) {
		index, err := strconv.Atoi(strings.TrimSpace(value))
		if err != nil || index < 0 {
			return // env-invalid says so, or it pins nothing
		}
		for _, p := range roce(ports) {
			if why := foreign(&p, index); why != "" {
				v.warn(on(n, facts.PortName(&p)), "unset it", "%s=%d %s", name, index, why)
			}
		}
	})
}

// foreign says why an index is not the one to take on a port, "" where it will do.
func foreign(p *topology.Port, index int) string {
	best := p.RankGIDs(topology.AnyGID)
	if len(best) == 0 {
		return ""
	}
	instead := fmt.Sprintf("its address %s is at %d", best[0].Addr.Unmap(), best[0].Index)
	for _, g := range p.GIDs {
		switch {
		case g.Index != index:
		case g.Type != best[0].Type:
			return fmt.Sprintf("is %s on %s (%s)", g.Type, p.String(), instead)
		case g.PrefixLen < 0:
			return fmt.Sprintf("is %s on %s, which no interface has (%s)", g.Addr.Unmap(), p.String(), instead)
		default:
			return ""
		}
	}
	return fmt.Sprintf("is empty on %s (%s)", p.String(), instead)
}

// eachPinned calls f with what the judged environment says of the index.
func eachPinned(n *facts.Node, v *verdict, f func(name, value string)) {
	env, _ := told(n, v)
	for _, name := range pinned {
		if value, set := env[name]; set {
			f(name, value)
		}
	}
}
