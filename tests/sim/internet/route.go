package internet

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// A route is how a packet leaves its host.
type route struct {
	out *Interface
	src netip.Addr // the address to send from, where the sender has none
	at  *Interface // whose address it goes to, on the host itself; nil of a packet to another one
}

// route finds the way to an address, as a socket has it that may be bound to an address and to an interface. A socket for
// IPv4 that is bound to an interface takes everything to be on its link.
// Preconditions: n.mu is locked.
func (h *Host) route(src, dst netip.Addr, bound *Interface) (r route, _ unix.Errno) {
	if src.IsValid() && h.owner(src) == nil {
		return r, unix.ENETUNREACH
	}
	if own := h.owner(dst); own != nil && (bound == nil || bound == own) && !(own.loopback() && own.down) {
		return route{out: h.interfaces[0], src: dst.WithZone(""), at: own}, 0
	}
	switch {
	case bound != nil && bound.down:
		return r, unix.ENETUNREACH
	case bound != nil && dst.Is4():
		r.out = bound
	case dst.Is6() && dst.IsLinkLocalUnicast() && bound == nil:
		return r, unix.EINVAL
	default:
		r.out = h.onLink(dst, bound)
	}
	if r.out == nil || r.out.loopback() {
		return r, unix.ENETUNREACH
	}
	if r.src = r.out.nearest(dst); !r.src.IsValid() {
		r.src = h.any(dst)
	}
	if !r.src.IsValid() && !src.IsValid() {
		return r, unix.EADDRNOTAVAIL
	}
	return r, 0
}

// onLink finds the interface to whose subnet an address belongs, the smallest such subnet.
func (h *Host) onLink(dst netip.Addr, bound *Interface) (best *Interface) {
	bits := -1
	for _, i := range h.interfaces {
		if i.down || bound != nil && i != bound {
			continue
		}
		for _, p := range i.addresses() {
			if p.Bits() > bits && p.Contains(dst.WithZone("")) {
				best, bits = i, p.Bits()
			}
		}
	}
	return best
}

// nearest is the address of an interface to speak to another from: one of the same subnet, else the first.
func (i *Interface) nearest(dst netip.Addr) (first netip.Addr) {
	for _, p := range i.addresses() {
		switch {
		case p.Addr().Is4() != dst.Is4():
		case p.Contains(dst.WithZone("")):
			return p.Addr()
		case !first.IsValid() && !p.Addr().IsLinkLocalUnicast():
			first = p.Addr()
		}
	}
	return first
}

// any is an address of the host, of the same family as another.
func (h *Host) any(like netip.Addr) netip.Addr {
	for _, i := range h.interfaces[1:] {
		for _, p := range i.addresses() {
			if p.Addr().Is4() == like.Is4() && !p.Addr().IsLinkLocalUnicast() {
				return p.Addr()
			}
		}
	}
	return netip.Addr{}
}

// send routes a packet and sends it.
// Preconditions: n.mu is locked.
func (h *Host) send(p *packet, bound *Interface) unix.Errno {
	r, errno := h.route(p.src, p.dst, bound)
	if errno != 0 {
		return errno
	}
	if r.at != nil {
		r.out.line.send(p, nil, r.at)
		return 0
	}
	r.out.resolve(p)
	return 0
}
