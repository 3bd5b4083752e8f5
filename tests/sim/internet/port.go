package internet

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/limit"
	"ncclmesh/transport/sock"
)

// A binding is the port that a socket has, at an address and on an interface.
type binding struct {
	port      uint16
	addr      netip.Addr // unspecified: all of its family; invalid: all of both
	on        *Interface // nil: any
	reuse     bool       // another socket that does so too may have the same
	listening bool
	chosen    bool // by a connection, which takes a port that leads from it to nowhere else
}

// meets reports whether two bindings have an address and an interface in common.
func (b *binding) meets(c *binding) bool {
	if b.on != nil && c.on != nil && b.on != c.on {
		return false
	}
	return b.covers(c.addr) || c.covers(b.addr)
}

// covers reports whether what comes to an address comes to the binding.
func (b *binding) covers(a netip.Addr) bool {
	switch {
	case !b.addr.IsValid():
		return true
	case b.addr.IsUnspecified():
		return a.IsValid() && a.Is4() == b.addr.Is4()
	}
	return b.addr.WithZone("") == a.WithZone("")
}

// taken reports whether a port is another socket's.
func (b *binding) taken(ports map[uint16][]*binding) bool {
	return slices.ContainsFunc(ports[b.port], func(c *binding) bool {
		return b.meets(c) && (!b.reuse || !c.reuse || c.listening)
	})
}

func (b *binding) take(ports map[uint16][]*binding) { ports[b.port] = append(ports[b.port], b) }

func (b *binding) giveBack(ports map[uint16][]*binding) {
	rest := slices.DeleteFunc(slices.Clone(ports[b.port]), func(c *binding) bool { return c == b })
	if len(rest) == 0 {
		delete(ports, b.port)
	} else {
		ports[b.port] = rest
	}
}

// ephemeral are the ports that a host chooses from: net.ipv4.ip_local_port_range.
var ephemeral = sock.PortRange{First: 32768, Last: 60999}

// search tries one port of a range after the other, from a turn on, until try takes one. The zero range is the host's own.
// It returns the error of the last.
func search(ports sock.PortRange, turn uint32, try func(port uint16) unix.Errno) unix.Errno {
	if ports == (sock.PortRange{}) {
		ports = ephemeral
	}
	size := uint32(ports.Last-ports.First) + 1
	for i := range size {
		if errno := try(ports.First + uint16((turn+i)%size)); errno != unix.EADDRINUSE {
			return errno
		}
	}
	return unix.EADDRINUSE
}

// usedUp says that no port of a range is free, as package sock does.
func usedUp(ports sock.PortRange, err error) error {
	if ports == (sock.PortRange{}) {
		return err
	}
	return limit.Out(err, fmt.Sprintf(": all ports of NCCL_MESH_PORTS=%v are in use on this machine; give it more ports, or see what holds them (ss -tuanp)", ports))
}
