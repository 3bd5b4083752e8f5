package topology

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ncclmesh/guard"
)

// Watch calls changed after each change of a link or an address, on its own goroutines, until done is closed. After a
// change of a link it first calls link with the link's name and whether it now has a carrier. Changes may come in
// bursts. After a panic, for which it calls caught, some changes are not reported any more.
func Watch(done <-chan struct{}, changed func(), link func(netdev string, carrier bool), caught func(*guard.Panic)) error {
	links := make(chan netlink.LinkUpdate, 16)
	addrs := make(chan netlink.AddrUpdate, 16)
	quiet := func(error) {} // the socket is closed because done is
	if err := netlink.LinkSubscribeWithOptions(links, done, netlink.LinkSubscribeOptions{ErrorCallback: quiet}); err != nil {
		return fmt.Errorf("watch the network interfaces over netlink: %w", err)
	}
	if err := netlink.AddrSubscribeWithOptions(addrs, done, netlink.AddrSubscribeOptions{ErrorCallback: quiet}); err != nil {
		return fmt.Errorf("watch the addresses over netlink: %w", err)
	}
	go guard.Run(func() {
		for l := range links { // the channel is closed after done
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
