package discovery

import (
	"net/netip"

	"ncclmesh/handshake"
	"ncclmesh/transport/limit"
	"ncclmesh/transport/sock"
)

// socket is a UDP socket for one address family on one interface.
type socket struct {
	packets sock.Packets
	at      iface
	six     bool
}

// group returns the multicast group that queries are sent to.
func group(six bool) netip.Addr {
	if six {
		return group6
	}
	return group4
}

// openReceive opens a socket that receives the queries on an interface. Other processes of the node may open such
// sockets too.
func (disc *Discovery) openReceive(at iface, six bool) (*socket, error) {
	p, err := disc.network.Hear(at.sock(), netip.AddrPortFrom(group(six), UDPPort))
	if err != nil {
		return nil, limit.Own(err)
	}
	return &socket{p, at, six}, nil
}

// openQuery opens a socket that sends queries and receives replies. For IPv4 it is bound to an address of the
// interface.
func (disc *Discovery) openQuery(at iface, six bool, source netip.Addr) (*socket, error) {
	p, err := disc.network.Ask(at.sock(), source, disc.cfg.PortRange)
	if err != nil {
		return nil, limit.Own(err)
	}
	return &socket{p, at, six}, nil
}

func (s *socket) close() { _ = s.packets.Close() }

// newDatagram returns a buffer for one message of the protocol.
func newDatagram() *sock.Datagram {
	return &sock.Datagram{Room: make([]byte, handshake.MaxNeighbourSize)}
}
