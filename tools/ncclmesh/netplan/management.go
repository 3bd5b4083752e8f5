package netplan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Management is how this node is reached by those who look after it: its default routes and, where it is reached by ssh,
// the way back to who did that.
type Management struct {
	getenv func(string) string
	ways   []way
}

// A way leads from an address of this node, over an interface, to the next one.
type way struct {
	what    string     // for people
	to      netip.Addr // the gateway, or who is connected by ssh; invalid where a route has no gateway
	dev     string
	own     netip.Addr
	answers bool // when it was looked at first: one that did has to, afterwards
}

// answerTime is how long an echo may take.
const answerTime = time.Second

// NewManagement looks at the management network as it is.
func NewManagement(ctx context.Context, getenv func(string) string) (*Management, error) {
	ways, err := current(getenv)
	if err != nil {
		return nil, err
	}
	for i := range ways {
		ways[i].answers = ways[i].to.IsValid() && answers(ctx, ways[i].own, ways[i].to, answerTime)
	}
	return &Management{getenv, ways}, nil
}

// Interfaces are those that the management network is on, with what for.
func (m *Management) Interfaces() map[string]string {
	devs := map[string]string{}
	for _, w := range m.ways {
		if devs[w.dev] == "" {
			devs[w.dev] = w.what
		}
	}
	return devs
}

// String says what is watched.
func (m *Management) String() string {
	if len(m.ways) == 0 {
		return "nothing: there is no default route and no ssh connection"
	}
	var list []string
	for _, w := range m.ways {
		s := w.what + " on " + w.dev
		if !w.answers {
			s += " (it answers no echo: only its route is watched)"
		}
		list = append(list, s)
	}
	return strings.Join(list, ", ")
}

// Lost says what is missing of the management network; nil if nothing is.
func (m *Management) Lost(ctx context.Context) error {
	now, err := current(m.getenv)
	if err != nil {
		return err
	}
	var errs []error
	for _, before := range m.ways {
		errs = append(errs, lost(ctx, before, now))
	}
	return errors.Join(errs...)
}

func lost(ctx context.Context, before way, now []way) error {
	for _, w := range now {
		if w.what == before.what && w.dev == before.dev && w.own == before.own {
			if before.answers && !answers(ctx, w.own, w.to, answerTime) {
				return fmt.Errorf("%s on %s: %v no longer answers", before.what, before.dev, before.to)
			}
			return nil
		}
	}
	return fmt.Errorf("%s on %s, from %v: gone", before.what, before.dev, before.own)
}

// current are the ways as they are now. One that has no carrier is none.
func current(getenv func(string) string) ([]way, error) {
	var ways []way
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("read the routes: %w", err)
		}
		for _, r := range routes {
			if r.Dst != nil {
				if ones, _ := r.Dst.Mask.Size(); ones > 0 {
					continue
				}
			}
			for _, hop := range hops(r) {
				w, ok := toGateway(hop, family)
				if ok {
					ways = append(ways, w)
				}
			}
		}
	}
	// "client port server port", of whoever is logged in by ssh.
	if f := strings.Fields(getenv("SSH_CONNECTION")); len(f) == 4 {
		if w, ok := toClient(f[0], f[2]); ok {
			ways = append(ways, w)
		}
	}
	return ways, nil
}

type hop struct {
	link    int
	gateway net.IP
}

func hops(r netlink.Route) []hop {
	if len(r.MultiPath) == 0 {
		return []hop{{r.LinkIndex, r.Gw}}
	}
	var list []hop
	for _, n := range r.MultiPath {
		list = append(list, hop{n.LinkIndex, n.Gw})
	}
	return list
}

func toGateway(h hop, family int) (way, bool) {
	link, err := netlink.LinkByIndex(h.link)
	if err != nil || link.Attrs().Flags&net.FlagLoopback != 0 || link.Attrs().RawFlags&unix.IFF_RUNNING == 0 {
		return way{}, false
	}
	w := way{dev: link.Attrs().Name, what: "the default route"}
	if a, ok := netip.AddrFromSlice(h.gateway); ok {
		w.to, w.what = a.Unmap(), "the default route through "+a.Unmap().String()
		if w.to.Is6() && w.to.IsLinkLocalUnicast() {
			w.to = w.to.WithZone(w.dev)
		}
	}
	addrs, err := netlink.AddrList(link, family)
	for _, a := range addrs {
		own, ok := netip.AddrFromSlice(a.IP)
		if own = own.Unmap(); ok && own.IsLinkLocalUnicast() == (w.to.Is6() && w.to.IsLinkLocalUnicast()) {
			if w.own = own; own.Is6() && own.IsLinkLocalUnicast() {
				w.own = own.WithZone(w.dev)
			}
			break
		}
	}
	return w, err == nil && w.own.IsValid()
}

// toClient is the way to who is connected by ssh, if it leaves from the address that they are connected to.
func toClient(client, server string) (way, bool) {
	to, err := netip.ParseAddr(client)
	own, err2 := netip.ParseAddr(server)
	if err != nil || err2 != nil || to.IsLoopback() {
		return way{}, false
	}
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return way{}, false
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil || link.Attrs().RawFlags&unix.IFF_RUNNING == 0 {
		return way{}, false
	}
	if !hasAddress(link, own) {
		return way{}, false
	}
	return way{what: "the route to " + client + ", the other end of your ssh connection,", to: to, dev: link.Attrs().Name, own: own}, true
}

func hasAddress(link netlink.Link, own netip.Addr) bool {
	addrs, _ := netlink.AddrList(link, netlink.FAMILY_ALL)
	return slices.ContainsFunc(addrs, func(a netlink.Addr) bool {
		x, ok := netip.AddrFromSlice(a.IP)
		return ok && x.Unmap() == own.Unmap().WithZone("")
	})
}
