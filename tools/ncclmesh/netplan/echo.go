package netplan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// pace is how often an echo is asked for.
const pace = 200 * time.Millisecond

// Asking for echoes needs a right that not every user has.
var errRights = errors.New("run it as root, or allow your group echoes in net.ipv4.ping_group_range")

// listen opens what asks for echoes, as any user may where the node lets them, else as root.
func listen(own netip.Addr) (*icmp.PacketConn, error) {
	datagram, raw := "udp4", "ip4:icmp"
	if own.Is6() {
		datagram, raw = "udp6", "ip6:ipv6-icmp"
	}
	c, err := icmp.ListenPacket(datagram, own.String())
	if errors.Is(err, os.ErrPermission) {
		if c, err = icmp.ListenPacket(raw, own.String()); errors.Is(err, os.ErrPermission) {
			err = errRights
		}
	}
	if err != nil {
		return nil, fmt.Errorf("ask for echoes on %v: %w", own, err)
	}
	return c, nil
}

// target is an address as the kind of socket wants it.
func target(c *icmp.PacketConn, to netip.Addr) net.Addr {
	if _, ok := c.LocalAddr().(*net.UDPAddr); ok {
		return &net.UDPAddr{IP: to.AsSlice(), Zone: to.Zone()}
	}
	return &net.IPAddr{IP: to.AsSlice(), Zone: to.Zone()}
}

func source(from net.Addr) netip.Addr {
	switch from := from.(type) {
	case *net.UDPAddr:
		return from.AddrPort().Addr().Unmap()
	case *net.IPAddr:
		a, _ := netip.AddrFromSlice(from.IP)
		return a.Unmap().WithZone(from.Zone)
	}
	return netip.Addr{}
}

// echo asks an address, which may be a group, for echoes until the context ends or answered, which is told of every one that
// answers, is content.
func echo(ctx context.Context, own, to netip.Addr, answered func(netip.Addr) (content bool)) error {
	c, err := listen(own)
	if err != nil {
		return err
	}
	defer c.Close()
	request, reply, protocol := icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply), 1
	if to.Is6() {
		request, reply, protocol = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, 58
		if to.IsMulticast() {
			if err := c.IPv6PacketConn().SetMulticastLoopback(false); err != nil {
				return err
			}
		}
	}
	b := make([]byte, 1500)
	for seq := 1; ctx.Err() == nil; seq++ {
		m := icmp.Message{Type: request, Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: seq, Data: []byte("ncclmesh")}}
		text, err := m.Marshal(nil)
		if err != nil {
			return err
		}
		if _, err := c.WriteTo(text, target(c, to)); err != nil && to.IsMulticast() {
			return fmt.Errorf("ask for an echo from %v: %w", own, err)
		}
		until := time.Now().Add(pace)
		if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
			until = deadline
		}
		if err := c.SetReadDeadline(until); err != nil {
			return err
		}
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				break // its time is up, or the way to there has gone
			}
			if m, err := icmp.ParseMessage(protocol, b[:n]); err == nil && m.Type == reply && answered(source(from)) {
				return nil
			}
		}
		if wait := time.Until(until); wait > 0 { // after an error that was early
			time.Sleep(wait)
		}
	}
	return nil
}

// answers reports whether an address answers within a time.
func answers(ctx context.Context, own, to netip.Addr, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	here := false
	err := echo(ctx, own, to, func(from netip.Addr) bool {
		here = here || from.WithZone("") == to.WithZone("")
		return here
	})
	return err == nil && here
}
