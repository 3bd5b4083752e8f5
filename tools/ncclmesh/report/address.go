package report

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
)

// A Node has the addresses and the name of this node, which are replaced where others only look like addresses.
type Node struct {
	Host  string
	MACs  []net.HardwareAddr
	Addrs []netip.Addr // of network interfaces, and GIDs
	GUIDs []uint64     // of RDMA devices
}

// Kinds of addresses, of which their names begin.
const (
	kindMAC  = "mac"
	kindGUID = "guid"
	kindIP   = "ip"
	kindHost = "this-node"
)

// A namer replaces addresses by names: mac-1, guid-1, ip-1, and this-node for the node's own name. Equal addresses have one
// name, in whatever spelling.
type namer struct {
	host  *regexp.Regexp     // matches the node's own name; nil if it has none
	names map[address]string // of addresses
	count map[string]int     // of names, by kind
	own   map[address]bool   // this node's addresses
	left  []spelling         // this node's addresses in all spellings
}

// A spelling is one of an address, in lower case.
type spelling struct {
	text []byte
	address
}

// An address is in one spelling: hexadecimal digits of a MAC address and a GUID, the usual one of an IP address.
type address struct{ kind, text string }

func newNamer(node Node) namer {
	n := namer{names: map[address]string{}, count: map[string]int{}, own: map[address]bool{}}
	if short, _, _ := strings.Cut(node.Host, "."); short != "" && short != "localhost" {
		n.host = regexp.MustCompile(`(?i)\b(?:` + regexp.QuoteMeta(node.Host) + `|` + regexp.QuoteMeta(short) + `)\b`)
	}
	for _, m := range node.MACs {
		if len(m) < 6 || trivial(m) {
			continue
		}
		digits := hex.EncodeToString(m)
		n.add(address{kindMAC, digits}, m.String(), strings.ReplaceAll(m.String(), ":", "-"))
		if len(m) == 6 {
			n.add(address{kindMAC, digits}, digits, digits[:4]+"."+digits[4:8]+"."+digits[8:])
		}
	}
	for _, g := range node.GUIDs {
		if digits := fmt.Sprintf("%016x", g); g != 0 {
			n.add(address{kindGUID, digits}, digits, digits[:4]+":"+digits[4:8]+":"+digits[8:12]+":"+digits[12:])
		}
	}
	for _, a := range node.Addrs {
		if a = a.WithZone("").Unmap(); !public(a) {
			continue
		}
		all := a.As16()
		n.add(ip(a), a.String(), hex.EncodeToString(all[:]))
		if a.Is4() {
			n.add(ip(a), strings.ReplaceAll(a.String(), ".", "-"))
		} else {
			n.add(ip(a), a.StringExpanded(), strings.ReplaceAll(a.String(), ":", "-"))
		}
	}
	return n
}

// add notes an address of this node and some of its spellings.
func (n *namer) add(a address, spellings ...string) {
	n.own[a] = true
	for _, s := range spellings {
		n.left = append(n.left, spelling{[]byte(s), a})
	}
}

// ip returns an IP address.
func ip(a netip.Addr) address { return address{kindIP, a.Unmap().String()} }

// trivial reports whether a hardware address is that of no device: all zeros, or that of a broadcast.
func trivial(mac []byte) bool {
	return len(bytes.Trim(mac, "\x00")) == 0 || len(bytes.Trim(mac, "\xff")) == 0
}

// public reports whether an address tells anything of a node.
func public(a netip.Addr) bool {
	a = a.Unmap()
	if a.Is4() {
		if b := a.As4(); b[0] == 0 || b[0] == 255 { // a mask
			return false
		}
	}
	return !a.IsLoopback() && !a.IsUnspecified() && !a.IsMulticast()
}

// name returns the name of an address, the same one each time.
func (n *namer) name(a address) string {
	if n.names[a] == "" {
		n.count[a.kind]++
		n.names[a] = fmt.Sprintf("%s-%d", a.kind, n.count[a.kind])
	}
	return n.names[a]
}

// leaks says which address of this node is in a text, without the address; nil if none is.
func (n *namer) leaks(text []byte) error {
	lower := lowered(text)
	for i, s := range n.left {
		if whole(lower, s.text, 0) >= 0 {
			return fmt.Errorf("holds address %d of %d of this node", i+1, len(n.left))
		}
	}
	return nil
}

// lowered returns a text in lower case of ASCII, which has the same length.
func lowered(text []byte) []byte {
	lower := bytes.Clone(text)
	for i, c := range lower {
		if c >= 'A' && c <= 'Z' {
			lower[i] += 'a' - 'A'
		}
	}
	return lower
}

// whole returns where in a text, at or after from, an address is that is no part of another; -1 if it is nowhere.
func whole(text, address []byte, from int) int {
	part := func(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c == '.' || c == ':' }
	for ; ; from++ {
		i := bytes.Index(text[from:], address)
		if i < 0 {
			return -1
		}
		from += i
		end := from + len(address)
		if (from == 0 || !part(text[from-1])) && (end == len(text) || !part(text[end]) || text[end] == '.' && (end+1 == len(text) || !part(text[end+1]))) {
			return from
		}
	}
}
