package topology

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// Watch calls changed after each change of a link or an address, from goroutines of its own, until done is closed.
// Changes may come in bursts.
func Watch(done <-chan struct{}, changed func()) error {
	links := make(chan netlink.LinkUpdate, 16)
	addrs := make(chan netlink.AddrUpdate, 16)
	quiet := func(error) {} // the socket is closed: the end
	if err := netlink.LinkSubscribeWithOptions(links, done, netlink.LinkSubscribeOptions{ErrorCallback: quiet}); err != nil {
		return fmt.Errorf("watch the network interfaces over netlink: %w", err)
	}
	if err := netlink.AddrSubscribeWithOptions(addrs, done, netlink.AddrSubscribeOptions{ErrorCallback: quiet}); err != nil {
		return fmt.Errorf("watch the addresses over netlink: %w", err)
	}
	go func() {
		for range links { // closed when done is
			changed()
		}
	}()
	go func() {
		for range addrs {
			changed()
		}
	}()
	return nil
}
