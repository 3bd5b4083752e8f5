package topology

import (
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// kernelLinks reads the links over netlink, in the network namespace of the calling thread.
func kernelLinks() ([]Link, error) {
	found, err := dump(netlink.LinkList)
	if err != nil {
		return nil, err
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	var routes []netlink.Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		some, err := dump(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE) // of all tables
		})
		if err != nil {
			return nil, err
		}
		routes = append(routes, some...)
	}
	links := make([]Link, len(found))
	at := make(map[int]int, len(found))
	for i, l := range found {
		a := l.Attrs()
		links[i] = Link{
			Name: a.Name, Index: a.Index, MTU: a.MTU, Kind: l.Type(), Parent: a.ParentIndex, Master: a.MasterIndex,
			Up: a.RawFlags&unix.IFF_UP != 0, Carrier: a.RawFlags&unix.IFF_LOWER_UP != 0, Loopback: a.RawFlags&unix.IFF_LOOPBACK != 0,
		}
		if len(a.HardwareAddr) == len(links[i].MAC) { // IPoIB has 20 bytes
			links[i].MAC = [6]byte(a.HardwareAddr)
		}
		at[a.Index] = i
	}
	for _, a := range addrs {
		i, ok := at[a.LinkIndex]
		if !ok || a.IPNet == nil || a.Flags&unix.IFA_F_DADFAILED != 0 { // a duplicate of another machine's address
			continue
		}
		ip, ok := netip.AddrFromSlice(a.IP)
		bits, size := a.Mask.Size()
		if !ok || size == 0 {
			continue
		}
		links[i].Addrs = append(links[i].Addrs, netip.PrefixFrom(ip.Unmap(), bits))
	}
	for _, r := range routes {
		for _, index := range defaultLinks(r) {
			if i, ok := at[index]; ok {
				links[i].Default = true
			}
		}
	}
	return links, nil
}

// defaultLinks returns the links of a route if it is a default route.
func defaultLinks(r netlink.Route) []int {
	if r.Dst != nil {
		if bits, _ := r.Dst.Mask.Size(); bits > 0 {
			return nil
		}
	}
	if r.Type != unix.RTN_UNICAST { // an "unreachable default" has no link
		return nil
	}
	links := []int{r.LinkIndex}
	for _, hop := range r.MultiPath {
		links = append(links, hop.LinkIndex)
	}
	return links
}

// dump repeats a listing that changed while the kernel was writing it. It returns the result of the last try even if
// that was interrupted, because a change after a complete listing would be missed too.
func dump[T any](list func() ([]T, error)) ([]T, error) {
	var all []T
	var err error
	for range 5 {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return all, nil
}
