package topology

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// HCAFilter selects RDMA ports as NCCL_IB_HCA does. The zero value selects all.
type HCAFilter struct{ list nameList }

// ParseHCA reads [^][=]name[:port[:rail[:plane]]],… A name selects every device that begins with it; = asks for whole
// names, ^ selects everything else. Rails and planes are accepted, as NCCL 2.30 has them, and have no meaning here.
func ParseHCA(s string) (HCAFilter, error) {
	l, err := parseNames(s)
	if err != nil {
		return HCAFilter{}, fmt.Errorf("RDMA device list %q: %w; want [^][=]name[:port],… such as mlx5_0:1,mlx5_1 or ^=mlx5_2", s, err)
	}
	return HCAFilter{l}, nil
}

// String returns the filter as it was written; "" is that of all ports.
func (f HCAFilter) String() string { return f.list.text }

// Named reports whether the filter says which ports to use, rather than which not to.
func (f HCAFilter) Named() bool { return f.list.named() }

// Match reports whether the port is selected.
func (f HCAFilter) Match(device string, port uint8) bool { return f.list.match(device, int(port)) }

// Select returns the ports that are selected, whatever their state.
func (f HCAFilter) Select(ports []Port) []Port {
	return filter(ports, func(p *Port) bool { return f.Match(p.Device, p.Num) })
}

// IfFilter selects network interfaces as NCCL_SOCKET_IFNAME does. The zero value selects all.
type IfFilter struct{ list nameList }

// ParseInterfaces reads [^][=]name,… A name selects every interface that begins with it; = asks for whole names, ^
// selects everything else.
func ParseInterfaces(s string) (IfFilter, error) {
	l, err := parseNames(s)
	if err != nil {
		return IfFilter{}, fmt.Errorf("interface list %q: %w; want [^][=]name,… such as enp1s0f0,eth or ^docker,lo", s, err)
	}
	return IfFilter{l}, nil
}

// String returns the filter as it was written; "" is that of all interfaces.
func (f IfFilter) String() string { return f.list.text }

// Match reports whether the interface is selected.
func (f IfFilter) Match(name string) bool { return f.list.match(name, anyPort) }

// Select returns the plain ports (Node.Plain) to use for TCP: those selected by name that are up and have an address.
// Unless interfaces were asked for by name, those that only lead to containers of this host are left out, and the loopback
// interface, whatever addresses it has, is kept only when nothing else is there.
func (f IfFilter) Select(plain []Port) []Port {
	usable := filter(plain, func(p *Port) bool { return p.Usable() && f.Match(p.Netdev) })
	if f.list.named() {
		return usable
	}
	outward := filter(usable, func(p *Port) bool { return !hostLocal(p.Netdev) && !p.Loopback })
	if len(outward) > 0 {
		return outward
	}
	return filter(usable, func(p *Port) bool { return p.Loopback })
}

// Waiting returns the plain ports that Select would, were they up and had they an address: of interfaces that were not
// asked for by name, those that have a hardware address and do not only lead to containers of this host.
func (f IfFilter) Waiting(plain []Port) []Port {
	return filter(plain, func(p *Port) bool {
		return !p.Usable() && f.Match(p.Netdev) && (f.list.named() || p.NodeGUID != 0 && !hostLocal(p.Netdev))
	})
}

// hostLocal reports whether an interface by its name is a bridge to containers or virtual machines of this host. They
// tend to have the same address on every host.
func hostLocal(name string) bool {
	for _, prefix := range []string{"docker", "br-", "virbr", "lxcbr", "lxdbr", "cni", "podman"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func filter(ports []Port, keep func(*Port) bool) []Port {
	var kept []Port
	for i := range ports {
		if keep(&ports[i]) {
			kept = append(kept, ports[i])
		}
	}
	return kept
}

// nameList is NCCL's syntax for choosing devices and interfaces.
type nameList struct {
	text           string // as it was written
	exclude, exact bool
	names          []namePort
}

type namePort struct {
	name string
	port int
}

const anyPort = -1

func parseNames(s string) (nameList, error) {
	s = strings.TrimSpace(s)
	l := nameList{text: s}
	switch {
	case s == "":
		return l, nil
	case strings.ContainsAny(s, "\"'`"):
		return nameList{}, errors.New("quotes are part of the value, and no name has one: a shell takes them off, docker --env-file, Kubernetes and systemd may not; write it without")
	case strings.ContainsFunc(s, unicode.IsSpace):
		return nameList{}, errors.New("blanks are part of the value, and no name has one: write commas alone between the names")
	}
	rest, _ := strings.CutPrefix(s, "^")
	l.exclude = rest != s
	list, exact := strings.CutPrefix(rest, "=")
	l.exact = exact
	for token := range strings.SplitSeq(list, ",") {
		if token == "" { // NCCL forgives a doubled or final comma
			continue
		}
		n, err := parseNamePort(token)
		if err != nil {
			return nameList{}, err
		}
		l.names = append(l.names, n)
	}
	if len(l.names) == 0 {
		return nameList{}, fmt.Errorf("no name in it")
	}
	return l, nil
}

func parseNamePort(token string) (namePort, error) {
	f := strings.Split(token, ":")
	n := namePort{f[0], anyPort}
	if strings.ContainsAny(n.name, "^=") || n.name == "" {
		return n, fmt.Errorf("%q is not a name", n.name)
	}
	if len(f) > 4 {
		return n, fmt.Errorf("%q has more than name:port:rail:plane", token)
	}
	for i, s := range f[1:] {
		if s == "" {
			continue
		}
		v, err := strconv.ParseUint(s, 10, 8)
		if err != nil || (i == 0 && v == 0) {
			return n, fmt.Errorf("%s %q of %q is not a number from %d to 255", []string{"port", "rail", "plane"}[i], s, n.name, max(1-i, 0))
		}
		if i == 0 {
			n.port = int(v)
		}
	}
	return n, nil
}

// Named reports whether the filter says which interfaces to use, rather than which not to.
func (f IfFilter) Named() bool { return f.list.named() }

// named reports whether the list says what to use, rather than what not to.
func (l nameList) named() bool { return len(l.names) > 0 && !l.exclude }

func (l nameList) match(name string, port int) bool {
	if len(l.names) == 0 {
		return true
	}
	listed := slices.ContainsFunc(l.names, func(n namePort) bool {
		if n.port != anyPort && port != anyPort && n.port != port {
			return false
		}
		return name == n.name || (!l.exact && strings.HasPrefix(name, n.name))
	})
	return listed != l.exclude
}
