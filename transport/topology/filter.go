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

// ParseHCA parses [^][=]name[:port[:rail[:plane]]],… A name selects every device that begins with it; = requires whole
// names, ^ selects everything else. Rails and planes are accepted, because NCCL 2.30 has them, and ignored.
func ParseHCA(s string) (HCAFilter, error) {
	l, err := parseNames(s)
	if err != nil {
		return HCAFilter{}, fmt.Errorf("RDMA device list %q: %w; want [^][=]name[:port],… such as mlx5_0:1,mlx5_1 or ^=mlx5_2", s, err)
	}
	return HCAFilter{l}, nil
}

// String returns the filter as it was written; "" selects all ports.
func (f HCAFilter) String() string { return f.list.text }

// Named reports whether the filter lists the ports to use, and not those to exclude.
func (f HCAFilter) Named() bool { return f.list.named() }

// Match reports whether the port is selected.
func (f HCAFilter) Match(device string, port uint8) bool { return f.list.match(device, int(port)) }

// Select returns the selected ports, regardless of their state.
func (f HCAFilter) Select(ports []Port) []Port {
	return filter(ports, func(p *Port) bool { return f.Match(p.Device, p.Num) })
}

// IfFilter selects network interfaces as NCCL_SOCKET_IFNAME does. The zero value selects all.
type IfFilter struct{ list nameList }

// ParseInterfaces parses [^][=]name,… A name selects every interface that begins with it; = requires whole names, ^
// selects everything else.
func ParseInterfaces(s string) (IfFilter, error) {
	l, err := parseNames(s)
	if err != nil {
		return IfFilter{}, fmt.Errorf("interface list %q: %w; want [^][=]name,… such as enp1s0f0,eth or ^docker,lo", s, err)
	}
	return IfFilter{l}, nil
}

// String returns the filter as it was written; "" selects all interfaces.
func (f IfFilter) String() string { return f.list.text }

// Match reports whether the interface is selected.
func (f IfFilter) Match(name string) bool { return f.list.match(name, anyPort) }

// Select returns the plain ports (Node.Plain) to use for TCP: the selected ones that are up and have an address. If the
// filter names no interfaces, it excludes those that only lead to containers of this host, and returns the loopback
// interface only if there is no other.
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

// Waiting returns the plain ports that Select would return if they were up and had an address. If the filter names no
// interfaces, these must have a hardware address and must not only lead to containers of this host.
func (f IfFilter) Waiting(plain []Port) []Port {
	return filter(plain, func(p *Port) bool {
		return !p.Usable() && f.Match(p.Netdev) && (f.list.named() || p.NodeGUID != 0 && !hostLocal(p.Netdev))
	})
}

// hostLocal reports whether an interface is, by its name, a bridge to containers or virtual machines of this host. Such
// interfaces often have the same address on every host.
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

// nameList is a list of devices or interfaces in NCCL's syntax.
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
		if token == "" { // NCCL ignores a doubled or final comma
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

// Named reports whether the filter lists the interfaces to use, and not those to exclude.
func (f IfFilter) Named() bool { return f.list.named() }

// named reports whether the list contains what to use, and not what to exclude.
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
