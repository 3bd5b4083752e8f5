package gather

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"ncclmesh/tools/ncclmesh/doctor/facts"
)

// kernelCarrier is how often each interface gained or lost its carrier. Package netlink leaves that out.
func kernelCarrier() (map[string]uint64, error) {
	names, err := interfaces()
	if err != nil {
		return nil, err
	}
	r := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	r.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	messages, err := r.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	changes := map[string]uint64{}
	for _, m := range messages {
		link := nl.DeserializeIfInfomsg(m)
		attrs, err := nl.ParseRouteAttr(m[link.Len():])
		if err != nil {
			return nil, err
		}
		for _, a := range attrs {
			if a.Attr.Type == unix.IFLA_CARRIER_CHANGES && len(a.Value) == 4 {
				changes[names[int(link.Index)]] = uint64(binary.NativeEndian.Uint32(a.Value))
			}
		}
	}
	return changes, nil
}

// interfaces are the names of the interfaces in the network namespace of the calling thread, by index.
func interfaces() (map[int]string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	return names, nil
}

// kernelRoutes are the routes of all tables in the network namespace of the calling thread,
// but for default routes and those that the kernel keeps for itself.
func kernelRoutes() ([]facts.Route, error) {
	names, err := interfaces()
	if err != nil {
		return nil, err
	}
	all := []facts.Route{}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			if r.Dst == nil || r.Type != unix.RTN_UNICAST || r.Table == unix.RT_TABLE_LOCAL {
				continue
			}
			addr, ok := netip.AddrFromSlice(r.Dst.IP)
			bits, size := r.Dst.Mask.Size()
			if !ok || size == 0 || bits == 0 {
				continue
			}
			all = append(all, facts.Route{Dst: netip.PrefixFrom(addr.Unmap(), bits), Dev: names[r.LinkIndex]})
		}
	}
	return all, nil
}

// kernelNeighbours are the entries of the kernel's table of neighbours that somebody put there for good, or that have answered
// a moment ago.
func kernelNeighbours() ([]facts.Neighbour, error) {
	names, err := interfaces()
	if err != nil {
		return nil, err
	}
	all := []facts.Neighbour{}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		entries, err := netlink.NeighList(0, family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, err
		}
		for _, e := range entries {
			addr, ok := netip.AddrFromSlice(e.IP)
			if ok && len(e.HardwareAddr) == len(facts.Neighbour{}.MAC) && e.State&(netlink.NUD_PERMANENT|netlink.NUD_REACHABLE) != 0 {
				all = append(all, facts.Neighbour{Dev: names[e.LinkIndex], Addr: addr.Unmap(), MAC: [6]byte(e.HardwareAddr), Permanent: e.State&netlink.NUD_PERMANENT != 0})
			}
		}
	}
	return all, nil
}

// limiting are the kinds of queueing disciplines that hold packets back, or lose them, as their user has told them.
var limiting = []string{"cbq", "hfsc", "htb", "netem", "tbf"}

// kernelShapers are the queueing disciplines of these kinds.
func kernelShapers() ([]facts.Shaper, error) {
	names, err := interfaces()
	if err != nil {
		return nil, err
	}
	found, err := netlink.QdiscList(nil)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	all := []facts.Shaper{}
	for _, q := range found {
		if slices.Contains(limiting, q.Type()) {
			all = append(all, facts.Shaper{Dev: names[q.Attrs().LinkIndex], Kind: q.Type()})
		}
	}
	return all, nil
}

// kernelLookup is the interface by which the kernel sends to an address.
func kernelLookup(to netip.Addr) (string, error) {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil {
		return "", err
	}
	if len(routes) == 0 {
		return "", fmt.Errorf("the kernel has no route to %s", to)
	}
	names, err := interfaces()
	return names[routes[0].LinkIndex], err
}

// outward is the address that the kernel would send from to the world, where there is a route: vLLM and SGLang take theirs so.
// Nothing is sent.
func outward() (netip.Addr, error) {
	c, err := net.Dial("udp4", "8.8.8.8:80")
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
		return netip.Addr{}, nil
	}
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr(), nil
}
