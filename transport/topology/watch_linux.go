package topology

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ncclmesh/guard"
)

// Watch calls changed after each change of a link or an address, from goroutines of its own, until done is closed. Before
// that it calls link, for a change of a link, with its name and whether it has a carrier now. Changes may come in bursts.
// After a panic, which caught is told of, some of them come no more.
func Watch(done <-chan struct{}, changed func(), link func(netdev string, carrier bool), caught func(*guard.Panic)) error {
	links := make(chan netlink.LinkUpdate, 16)
	addrs := make(chan netlink.AddrUpdate, 16)
	quiet := func(error) {} // the socket is closed: the end
	if err := netlink.LinkSubscribeWithOptions(links, done, netlink.LinkSubscribeOptions{ErrorCallback: quiet}); err != nil {
		return fmt.Errorf("watch the network interfaces over netlink: %w", err)
	}
	if err := netlink.AddrSubscribeWithOptions(addrs, done, netlink.AddrSubscribeOptions{ErrorCallback: quiet}); err != nil {
		return fmt.Errorf("watch the addresses over netlink: %w", err)
	}
	go guard.Run(func() {
		for l := range links { // closed when done is
			a := l.Attrs()
			link(a.Name, a.RawFlags&unix.IFF_UP != 0 && a.RawFlags&unix.IFF_LOWER_UP != 0)
			changed()
		}
	}, caught)
	go guard.Run(func() {
		for range addrs {
			changed()
		}
	}, caught)
	return nil
}
