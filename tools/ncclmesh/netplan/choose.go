package netplan

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ncclmesh/printable"
	"ncclmesh/transport/topology"
)

// A Present is what the node's links are chosen by.
type Present struct {
	Node       *topology.Node
	Management map[string]string // interfaces of the management network, and what for
	Owners     Owners
	Own        []string // addresses that this command's file gave
}

// Choose returns the links to give addresses to: those that are named, else those of RDMA ports, else, where there are none,
// the node's network adapters. Links of the management network, and those that something else configures, never get one: it
// is an error to name one.
func (p Present) Choose(named []string) (links []topology.Link, left []Left, err error) {
	if len(named) == 0 {
		named = p.candidates()
	} else {
		for _, name := range named {
			i := slices.IndexFunc(p.Node.Links, func(l topology.Link) bool { return l.Name == name })
			if i < 0 {
				return nil, nil, fmt.Errorf("--interface %s: there is no such interface; there are %s", name, strings.Join(p.names(), ", "))
			}
			if why := p.refused(p.Node.Links[i]); why != "" {
				return nil, nil, fmt.Errorf("--interface %s: %s", name, why)
			}
		}
	}
	for _, l := range p.Node.Links {
		if !slices.Contains(named, l.Name) {
			continue
		}
		why := p.refused(l)
		switch {
		case why != "":
		case !l.Up:
			why = "is down: ip link set " + l.Name + " up, then try again"
		case !l.Carrier:
			why = "has no carrier: nothing is plugged in, or the other end is down"
		default:
			links = append(links, l)
			continue
		}
		left = append(left, Left{l.Name, why})
	}
	return links, left, nil
}

func (p Present) names() []string {
	var names []string
	for _, l := range p.Node.Links {
		names = append(names, l.Name)
	}
	return names
}

func (p Present) candidates() []string {
	var names []string
	for _, port := range p.Node.Ports {
		if port.Netdev != "" {
			names = append(names, port.Netdev)
		}
	}
	if len(names) == 0 {
		for _, l := range p.Node.Links {
			if l.Kind == "device" && !l.Loopback {
				names = append(names, l.Name)
			}
		}
	}
	return names
}

// refused says why a link must not get an address, "" where it may.
func (p Present) refused(l topology.Link) string {
	if printable.Line(l.Name, len(l.Name)) != l.Name {
		return "has a name that cannot be printed: ip link set dev NAME name ANOTHER"
	}
	if what, ok := p.Management[l.Name]; ok {
		return "carries " + strings.TrimSuffix(what, ",")
	}
	if l.Default {
		return "carries a default route"
	}
	if l.Loopback || l.Kind != "device" && l.Kind != "veth" {
		return "is no adapter, but of kind " + l.Kind
	}
	if file := p.Owners.Of(l.Name, net.HardwareAddr(l.MAC[:]).String()); file != "" {
		return "is configured by " + file
	}
	for _, a := range l.Addrs {
		if !a.Addr().IsLinkLocalUnicast() && !slices.Contains(p.Own, a.String()) {
			return fmt.Sprintf("has %v, which something else gave it: remove that first", a)
		}
	}
	return ""
}

// InUse are the prefixes that links other than those have, and their routes.
func (p Present) InUse(links []topology.Link) ([]Used, error) {
	var used []Used
	chosen := map[int]bool{}
	for _, l := range links {
		chosen[l.Index] = true
	}
	names := map[int]string{}
	for _, l := range p.Node.Links {
		names[l.Index] = l.Name
		for _, a := range l.Addrs {
			if a.Addr().Is4() && !chosen[l.Index] {
				used = append(used, Used{a.Masked(), l.Name})
			}
		}
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("read the routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst == nil || chosen[r.LinkIndex] {
			continue
		}
		a, ok := netip.AddrFromSlice(r.Dst.IP.To4())
		if ones, _ := r.Dst.Mask.Size(); ok && ones > 0 {
			used = append(used, Used{netip.PrefixFrom(a, ones), "a route over " + names[r.LinkIndex]})
		}
	}
	return used, nil
}
