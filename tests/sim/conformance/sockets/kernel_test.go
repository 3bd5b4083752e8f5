package sockets

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ncclmesh/tests/require"
	"ncclmesh/transport/sock"
)

// A space is a network namespace: the kernel's sockets of one host.
type space struct{ fd int }

// newSpace makes a namespace, with its loopback interface up.
func newSpace() (s *space, err error) {
	s = &space{fd: -1}
	onThread(func() {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("a network namespace of its own needs root: %w", err)
			return
		}
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0) // else addresses can be used after a second
		if err = up("lo", true); err == nil {
			s.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
	})
	return s, err
}

// onThread calls f on a thread of its own, which ends with it.
func onThread(f func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread()
		f()
	})
	wg.Wait()
}

// do calls f in the namespace.
func (s *space) do(f func()) {
	onThread(func() {
		if err := unix.Setns(s.fd, unix.CLONE_NEWNET); err != nil {
			panic(err)
		}
		f()
	})
}

func (s *space) Dial(ctx context.Context, from sock.From, to netip.AddrPort) (c sock.Conn, err error) {
	s.do(func() { c, err = sock.Kernel{}.Dial(ctx, from, to) })
	return c, err
}

func (s *space) Listen(at netip.AddrPort, netdev string, ports sock.PortRange) (l sock.Listener, err error) {
	s.do(func() { l, err = sock.Kernel{}.Listen(at, netdev, ports) })
	if err != nil {
		return nil, err
	}
	return &listener{l, s}, nil
}

// listener names interfaces as its namespace does.
type listener struct {
	sock.Listener
	space *space
}

func (l *listener) Accept() (c sock.Conn, err error) {
	l.space.do(func() { c, err = l.Listener.Accept() })
	return c, err
}

func (s *space) Hear(on sock.Interface, group netip.AddrPort) (p sock.Packets, err error) {
	s.do(func() { p, err = sock.Kernel{}.Hear(on, group) })
	return p, err
}

func (s *space) Ask(on sock.Interface, source netip.Addr, ports sock.PortRange) (p sock.Packets, err error) {
	s.do(func() { p, err = sock.Kernel{}.Ask(on, source, ports) })
	return p, err
}

func (s *space) Interfaces() (all []sock.Interface, err error) {
	s.do(func() { all, err = sock.Kernel{}.Interfaces() })
	return all, err
}

func (s *space) Prefixes(index int) (all []netip.Prefix) {
	s.do(func() { all = sock.Kernel{}.Prefixes(index) })
	return all
}

// up takes an interface of the thread's namespace up or down.
func up(name string, on bool) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if on {
		return netlink.LinkSetUp(l)
	}
	return netlink.LinkSetDown(l)
}

// kernel is the faults of a host in a namespace.
type kernel struct {
	*space
	t     *testing.T
	host  *host
	other *space
}

func (k *kernel) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

// lose gives the other host a hardware address that it does not have.
func (k *kernel) lose(on bool) {
	k.t.Helper()
	var there netlink.Link
	var err error
	k.other.do(func() { there, err = netlink.LinkByName("eth0") })
	k.must(err)
	k.do(func() {
		var here netlink.Link
		if here, err = netlink.LinkByName("eth0"); err != nil {
			return
		}
		for _, a := range []netip.Addr{k.host.other.four, k.host.other.six, k.host.other.local} {
			hw, state := there.Attrs().HardwareAddr, unix.NUD_REACHABLE
			if on {
				hw, state = net.HardwareAddr{2, 0xde, 0xad, 0, 0, 1}, unix.NUD_PERMANENT
			}
			err = errors.Join(err, netlink.NeighSet(&netlink.Neigh{LinkIndex: here.Attrs().Index, IP: a.WithZone("").AsSlice(), HardwareAddr: hw, State: state}))
		}
	})
	k.must(err)
}

func (k *kernel) up(on bool) {
	k.t.Helper()
	var err error
	k.do(func() { err = up("eth0", on) })
	k.must(err)
}

func (k *kernel) address(p netip.Prefix, on bool) {
	k.t.Helper()
	var err error
	k.do(func() {
		var l netlink.Link
		if l, err = netlink.LinkByName("eth0"); err != nil {
			return
		}
		a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}, Flags: unix.IFA_F_NODAD}
		if on {
			err = netlink.AddrAdd(l, a)
		} else {
			err = netlink.AddrDel(l, a)
		}
	})
	k.must(err)
}

// cable joins two namespaces by a pair of interfaces.
func cable(a, b *space) (err error) {
	a.do(func() {
		veth := netlink.NewLinkAttrs()
		veth.Name = "eth0"
		err = netlink.LinkAdd(&netlink.Veth{LinkAttrs: veth, PeerName: "eth0", PeerNamespace: netlink.NsFd(b.fd)})
	})
	if err != nil {
		return fmt.Errorf("veth: %w", err)
	}
	for _, s := range []*space{a, b} { // who has no neighbour waits for less
		s.do(func() {
			_ = os.WriteFile("/proc/sys/net/ipv4/neigh/eth0/retrans_time_ms", []byte("100"), 0)
			_ = os.WriteFile("/proc/sys/net/ipv6/neigh/eth0/retrans_time_ms", []byte("100"), 0)
		})
	}
	return nil
}

// usable waits until no address is tentative any more, and returns the link-local one.
func (s *space) usable() (local netip.Addr, index int, err error) {
	for local == (netip.Addr{}) && err == nil {
		s.do(func() {
			var l netlink.Link
			var all []netlink.Addr
			if l, err = netlink.LinkByName("eth0"); err == nil {
				index = l.Attrs().Index
				all, err = netlink.AddrList(l, netlink.FAMILY_V6)
			}
			for _, a := range all {
				if a.Flags&unix.IFA_F_TENTATIVE == 0 && a.IP.IsLinkLocalUnicast() {
					local, _ = netip.AddrFromSlice(a.IP)
				}
			}
		})
		time.Sleep(time.Millisecond)
	}
	return local, index, err
}

// lacking is why the kernel's sockets cannot be tried.
var lacking = sync.OnceValue(func() error {
	a, err := newSpace()
	if err != nil {
		return err
	}
	defer unix.Close(a.fd)
	return cable(a, a)
})

func TestKernel(t *testing.T) {
	if err := lacking(); err != nil && !errors.Is(err, unix.EEXIST) { // both ends have one name
		require.Skip(t, require.Netns, err.Error())
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			if !r.alone {
				t.Parallel()
			}
			w := &world{T: t, pause: func() { time.Sleep(100 * time.Microsecond) }}
			var spaces []*space
			for range 2 {
				s, err := newSpace()
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Close(s.fd)
				spaces = append(spaces, s)
			}
			if err := cable(spaces[0], spaces[1]); err != nil {
				t.Fatal(err)
			}
			for i, s := range spaces {
				w.add(s, func(h *host) faults { return &kernel{s, t, h, spaces[1-i]} })
			}
			for _, h := range w.hosts {
				h.up(true)
				for _, p := range h.prefixes() {
					h.address(p, true)
				}
			}
			for i, h := range w.hosts {
				var err error
				var local netip.Addr
				if local, h.index, err = spaces[i].usable(); err != nil {
					t.Fatal(err)
				}
				h.local = local.WithZone("eth0")
			}
			r.run(w)
		})
	}
}
