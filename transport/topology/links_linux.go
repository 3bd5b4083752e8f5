package topology

import (
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// kernelLinks takes a snapshot over netlink, in the network namespace of the calling thread.
func kernelLinks() ([]Link, error) {
	found, err := dump(netlink.LinkList)
	if err != nil {
		return nil, err
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	links := make([]Link, len(found))
	at := make(map[int]int, len(found))
	for i, l := range found {
		a := l.Attrs()
		links[i] = Link{
			Name: a.Name, Index: a.Index, MTU: a.MTU, Kind: l.Type(), Parent: a.ParentIndex,
			Up: a.RawFlags&unix.IFF_UP != 0, Carrier: a.RawFlags&unix.IFF_LOWER_UP != 0, Loopback: a.RawFlags&unix.IFF_LOOPBACK != 0,
		}
		if len(a.HardwareAddr) == len(links[i].MAC) { // IPoIB has 20 bytes
			links[i].MAC = [6]byte(a.HardwareAddr)
		}
		at[a.Index] = i
	}
	for _, a := range addrs {
		i, ok := at[a.LinkIndex]
		if !ok || a.IPNet == nil || a.Flags&unix.IFA_F_DADFAILED != 0 { // an address that another machine has
			continue
		}
		ip, ok := netip.AddrFromSlice(a.IP)
		bits, size := a.Mask.Size()
		if !ok || size == 0 {
			continue
		}
		links[i].Addrs = append(links[i].Addrs, netip.PrefixFrom(ip.Unmap(), bits))
	}
	return links, nil
}

// dump repeats a listing that changed while the kernel was writing it. The last try's result is good enough: a change
// after it would have been missed as well.
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
