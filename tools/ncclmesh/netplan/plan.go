package netplan

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
)

// Range is where subnets of cables are taken from unless told otherwise.
var Range = netip.MustParsePrefix("10.176.0.0/12")

// subnetBits is the length of a cable's prefix: an address for each end.
const subnetBits = 30

// MTU is what RoCE's largest packets need, and adapters have.
const MTU = 9000

// An Entry is a function with its address.
type Entry struct {
	Cable
	Address netip.Prefix // not masked
}

// A Plan is what the node's file says.
type Plan []Entry

// ParseRange reads a prefix that subnets can be taken from.
func ParseRange(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || !p.Addr().Is4() || p.Bits() > subnetBits-8 || p.Bits() < 8 || p != p.Masked() {
		return p, fmt.Errorf("want an IPv4 prefix of 8 to %d bits, the same on all nodes, as %v", subnetBits-8, Range)
	}
	return p, nil
}

// Used is a prefix that something else on the node has.
type Used struct {
	Prefix netip.Prefix
	By     string // for people
}

// New gives every cable its subnet. It is an error when two would get the same, or one that is used: another range, the same
// on all nodes, is the way out.
func New(cables []Cable, within netip.Prefix, used []Used) (Plan, error) {
	var p Plan
	for _, c := range cables {
		a := address(c, within)
		for _, u := range used {
			if u.Prefix.Overlaps(a) {
				return nil, fmt.Errorf("%s would get %v, which %s has (%v): choose another --range, the same on all nodes", c.Name, a, u.By, u.Prefix)
			}
		}
		for _, e := range p {
			if e.Address.Overlaps(a) {
				return nil, fmt.Errorf("%s and %s would both get %v: choose another --range, the same on all nodes", e.Name, c.Name, a.Masked())
			}
		}
		p = append(p, Entry{c, a})
	}
	return p, nil
}

// address is a function of the cable's two ends: the lower hardware address gets the lower address of the subnet.
func address(c Cable, within netip.Prefix) netip.Prefix {
	low, high, host := c.MAC, c.Remote, uint32(1)
	if bytes.Compare(low, high) > 0 {
		low, high, host = high, low, 2
	}
	sum := sha256.Sum256(append(bytes.Clone(low), high...))
	n := binary.BigEndian.Uint32(sum[:]) >> (32 - (subnetBits - within.Bits()))
	base := within.Addr().As4()
	a := binary.BigEndian.Uint32(base[:]) + n<<(32-subnetBits) + host
	return netip.PrefixFrom(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, a))), subnetBits)
}

// MTUs returns what gives the plan's interfaces the MTUs that they have now: netplan leaves them as they are when a file has
// gone.
func (p Plan) MTUs() (restore func() error, err error) {
	before := map[string]int{}
	for _, e := range p {
		link, err := netlink.LinkByName(e.Name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name, err)
		}
		before[e.Name] = link.Attrs().MTU
	}
	return func() error {
		var errs []error
		for name, mtu := range before {
			link, err := netlink.LinkByName(name)
			if err == nil && link.Attrs().MTU != mtu {
				err = netlink.LinkSetMTU(link, mtu)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("MTU of %s: %w", name, err))
			}
		}
		return errors.Join(errs...)
	}, nil
}

// File is the plan as netplan reads it. IPv6 link-local addresses stay: discovery and GIDs go by them; so does an address
// when the other end reboots, without which GIDs would move.
func (p Plan) File() string {
	var b strings.Builder
	b.WriteString("# Written by ncclmesh netplan: a subnet for each cable. The next --apply writes it again.\nnetwork:\n  version: 2\n  ethernets:\n")
	for _, e := range p {
		fmt.Fprintf(&b, "    %s: # cable to %v\n", e.Name, e.Remote)
		fmt.Fprintf(&b, "      addresses: [%v]\n      mtu: %d\n", e.Address, MTU)
		b.WriteString("      dhcp4: false\n      dhcp6: false\n      accept-ra: false\n      link-local: [ipv6]\n      ignore-carrier: true\n      optional: true\n")
	}
	return b.String()
}
