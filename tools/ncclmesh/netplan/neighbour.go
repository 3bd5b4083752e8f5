package netplan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ncclmesh/transport/topology"
)

// allNodes are all on a link.
var allNodes = netip.MustParseAddr("ff02::1")

// A Left is a link that gets no address, and why.
type Left struct{ Link, Why string }

// Neighbours asks who is on each link, all at once, for as long as the time says: everything that speaks IPv6 answers on its
// link-local address, with no address given to it and nothing of this project running there.
func Neighbours(ctx context.Context, links []topology.Link, within time.Duration) ([]Function, []Left, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	functions, errs := make([]Function, len(links)), make([]error, len(links))
	var all sync.WaitGroup
	for i, l := range links {
		all.Go(func() {
			functions[i] = Function{Name: l.Name, MAC: net.HardwareAddr(l.MAC[:])}
			functions[i].Neighbours, errs[i] = onLink(ctx, l)
		})
	}
	all.Wait()
	var left []Left
	var found []Function
	for i, err := range errs {
		switch {
		case errors.Is(err, errRights):
			return nil, nil, err
		case err != nil:
			left = append(left, Left{links[i].Name, err.Error()})
		default:
			found = append(found, functions[i])
		}
	}
	return found, left, nil
}

// onLink returns the hardware addresses of those that answer on a link.
func onLink(ctx context.Context, l topology.Link) ([]net.HardwareAddr, error) {
	own := netip.Addr{}
	for _, a := range l.Addrs {
		if a.Addr().Is6() && a.Addr().IsLinkLocalUnicast() {
			own = a.Addr().WithZone(l.Name)
		}
	}
	if !own.IsValid() {
		return nil, errors.New("has no IPv6 link-local address, which neighbours are found by")
	}
	heard := map[netip.Addr]bool{}
	if err := usable(ctx, own); err != nil {
		return nil, err
	}
	err := echo(ctx, own, allNodes.WithZone(l.Name), func(from netip.Addr) bool {
		heard[from.WithZone("")] = from.WithZone("") != own.WithZone("")
		return false
	})
	if err != nil {
		return nil, err
	}
	// To answer it, they had to ask for this end's hardware address, and told theirs with that; or knew it, and then a
	// packet to each makes the kernel ask for theirs.
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*pace)
	defer cancel()
	var all sync.WaitGroup
	for a, other := range heard {
		if other {
			all.Go(func() { _ = echo(again, own, a.WithZone(l.Name), func(netip.Addr) bool { return true }) })
		}
	}
	all.Wait()
	entries, err := netlink.NeighList(l.Index, unix.AF_INET6)
	if err != nil {
		return nil, fmt.Errorf("read its neighbours: %w", err)
	}
	var macs []net.HardwareAddr
	for _, e := range entries {
		if a, ok := netip.AddrFromSlice(e.IP); ok && heard[a] && len(e.HardwareAddr) == 6 {
			macs = append(macs, e.HardwareAddr)
		}
	}
	return macs, nil
}

// usable waits until an address may be used: a new one is first looked for on the link.
func usable(ctx context.Context, own netip.Addr) error {
	for {
		c, err := listen(own)
		if err == nil {
			return c.Close()
		}
		if !errors.Is(err, unix.EADDRNOTAVAIL) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("its IPv6 link-local address is not usable yet: try again in a moment")
		case <-time.After(pace):
		}
	}
}
