package hail

import (
	"net/netip"

	"ncclmesh/handshake"
	"ncclmesh/transport/limit"
	"ncclmesh/transport/sock"
)

// socket is one for one address family at a place.
type socket struct {
	packets sock.Packets
	at      place
	six     bool
}

// group is what questions are sent to.
func group(six bool) netip.Addr {
	if six {
		return group6
	}
	return group4
}

// openEar makes a socket that hears the questions on an interface; other processes of the node may have the like.
func (h *Hailer) openEar(at place, six bool) (*socket, error) {
	p, err := h.network.Hear(at.on(), netip.AddrPortFrom(group(six), UDPPort))
	if err != nil {
		return nil, limit.Own(err)
	}
	return &socket{p, at, six}, nil
}

// openMouth makes a socket to ask from, and to hear the answers; for IPv4 at an address of the interface.
func (h *Hailer) openMouth(at place, six bool, source netip.Addr) (*socket, error) {
	p, err := h.network.Ask(at.on(), source, h.cfg.PortRange)
	if err != nil {
		return nil, limit.Own(err)
	}
	return &socket{p, at, six}, nil
}

func (s *socket) close() { _ = s.packets.Close() }

// newDatagram makes room for one of the protocol.
func newDatagram() *sock.Datagram { return &sock.Datagram{Room: make([]byte, handshake.MaxHailSize)} }
