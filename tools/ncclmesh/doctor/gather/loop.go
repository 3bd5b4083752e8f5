package gather

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/transport/topology"
)

// loops finds interfaces that hear each other. Functions of one cage share its connector, and may.
func (l *looker) loops() {
	n := l.node
	found, ok := n.Topology.Get()
	if !ok {
		n.Loops = facts.Unknown[[][2]string](n.Topology.Because())
		return
	}
	cage := map[int]*topology.Port{}
	var indices []int
	lacking := false
	for i, p := range slices.Concat(found.Ports, found.Plain) {
		rdma := i < len(found.Ports)
		speaks := slices.ContainsFunc(p.Addrs, linkLocal)
		if p.IfIndex <= 0 || !p.Carrier || cage[p.IfIndex] != nil || !rdma && (!speaks || p.Loopback || p.Default || p.Wireless) {
			continue
		}
		cage[p.IfIndex] = &p
		if speaks {
			indices = append(indices, p.IfIndex)
		}
		lacking = lacking || !speaks
	}
	pairs := [][2]string{}
	switch {
	case len(cage) < 2:
		n.Loops = facts.Known(pairs)
		return
	case lacking:
		n.Loops = facts.Unknown[[][2]string]("not all ports that are up have an IPv6 link-local address, over which a loop would be noticed")
		return
	}
	heard, err := l.Echo(indices)
	if err != nil {
		n.Loops = facts.Unknown[[][2]string](err.Error())
		return
	}
	for _, h := range heard {
		a, b := cage[h[0]], cage[h[1]]
		if a == nil || b == nil || a.Cage() == b.Cage() {
			continue
		}
		pair := [2]string{min(a.Netdev, b.Netdev), max(a.Netdev, b.Netdev)}
		if !slices.Contains(pairs, pair) {
			pairs = append(pairs, pair)
		}
	}
	n.Loops = facts.Known(pairs)
}

func linkLocal(a netip.Prefix) bool { return a.Addr().Is6() && a.Addr().IsLinkLocalUnicast() }

// group is where the interfaces are called at: on the link alone, of no protocol's.
var group = [16]byte{0xff, 0x12, 12: 'm', 13: 'e', 14: 's', 15: 'h'}

// An echo is awaited for this long after each call; a cable takes microseconds. An address
// that the kernel is still looking for duplicates of can call in a second or two.
const (
	echoWait  = 50 * time.Millisecond
	echoTimes = 4
	echoLimit = 3 * time.Second
)

// echo sends a datagram out of each interface that stays on its link, and returns which
// interface heard which: pairs of indices, from and at.
func echo(indices []int) (heard [][2]int, err error) {
	c, err := net.ListenUDP("udp6", &net.UDPAddr{IP: net.IPv6unspecified})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	port := c.LocalAddr().(*net.UDPAddr).Port
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	refused := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 0))
		err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 1))
		for _, i := range indices {
			err = errors.Join(err, unix.SetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: group, Interface: uint32(i)}))
		}
	})
	if err = errors.Join(refused, err); err != nil {
		return nil, fmt.Errorf("listen for a loop: %w", err)
	}
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // which never fails
	for calls, until := 0, time.Now().Add(echoLimit); calls < echoTimes; {
		var failed error
		for _, i := range indices {
			b := binary.BigEndian.AppendUint32(slices.Clone(nonce[:]), uint32(i))
			failed = cmp.Or(failed, sendOut(raw, b, i, port))
		}
		heard = append(heard, listen(c, nonce[:])...)
		switch {
		case failed == nil:
			calls++
		case time.Now().After(until):
			return nil, fmt.Errorf("call for a loop: %w", failed)
		}
	}
	return heard, nil
}

// sendOut sends a datagram to the group out of an interface.
func sendOut(raw syscall.RawConn, b []byte, index, port int) (err error) {
	refused := raw.Control(func(fd uintptr) {
		err = unix.Sendto(int(fd), b, unix.MSG_DONTWAIT, &unix.SockaddrInet6{Port: port, ZoneId: uint32(index), Addr: group})
	})
	return cmp.Or(refused, err)
}

// listen returns what comes in of one's own for a while.
func listen(c *net.UDPConn, nonce []byte) (heard [][2]int) {
	_ = c.SetReadDeadline(time.Now().Add(echoWait))
	var b [64]byte
	var oob [128]byte
	for {
		n, on, _, _, err := c.ReadMsgUDP(b[:], oob[:])
		if err != nil {
			return heard
		}
		if n != len(nonce)+4 || !slices.Equal(b[:len(nonce)], nonce) {
			continue
		}
		from := int(binary.BigEndian.Uint32(b[len(nonce):n]))
		if at := arrivedAt(oob[:on]); at != 0 && at != from {
			heard = append(heard, [2]int{from, at})
		}
	}
}

// arrivedAt is the interface that a datagram came in at, 0 when the kernel does not say.
func arrivedAt(oob []byte) int {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		// struct in6_pktinfo: an address, and the index of an interface
		if m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 20 {
			return int(binary.NativeEndian.Uint32(m.Data[16:20]))
		}
	}
	return 0
}
