package transport

import (
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"

	"ncclmesh/handshake"
	"ncclmesh/tests/require"
	"ncclmesh/transport/topology"
)

// A change of an address reaches the peers, and paths are proved anew.
func TestAddressChange(t *testing.T) {
	leaks(t)
	ip := func(args ...string) error {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			t.Logf("ip %v: %s", args, out)
		}
		return err
	}
	if _, err := os.Stat("/sys/class/net/p1"); err != nil || ip("addr", "show", "dev", "p1") != nil {
		require.Skip(t, require.Netns, "no network namespace with the ports' interfaces, or no ip command")
	}
	a, b := newTransport(t), newTransport(t)
	s, r := connect(t, a, b)
	closeBoth(t, s, r)
	has := func(ports []handshake.Port) bool {
		return slices.ContainsFunc(ports[1].Addrs, func(x handshake.PortAddr) bool {
			return addrOf(x.GID) == netip.MustParseAddr("192.168.2.1") && x.PrefixLen == 24
		})
	}
	sess := s.s
	if !has(a.portsOf(sess)) {
		t.Fatalf("the peer does not tell of 192.168.2.1/24: %+v", a.portsOf(sess))
	}
	for _, step := range []struct {
		verb string
		want bool
	}{{"del", false}, {"add", true}} {
		if err := ip("addr", step.verb, "192.168.2.1/24", "dev", "p1"); err != nil {
			t.Fatal(err)
		}
		await(t, "the peer to tell of the change", func() bool { return has(a.portsOf(sess)) == step.want })
		a.mu.Lock()
		known := a.known[sess.Peer().Process]
		a.mu.Unlock()
		if known != nil {
			t.Error("paths from before the change are still trusted")
		}
		s, r := connect(t, a, b)
		closeBoth(t, s, r)
	}
}

// What is logged of a change shows it.
func TestPortNews(t *testing.T) {
	was := portState{Port: topology.Port{Device: "rdma0", Num: 1, Netdev: "p0", State: "ACTIVE", LinkMbps: 100000,
		Addrs: []netip.Prefix{netip.MustParsePrefix("192.168.1.1/24")}}}
	const line = "rdma0:1 (p0) RoCE ACTIVE, link 100 Gb/s, no usable address"
	tests := []struct {
		name   string
		change func(*portState)
		want   string
	}{
		{"shown", func(s *portState) { s.State = "DOWN" }, "rdma0:1 (p0) RoCE DOWN, link 100 Gb/s, no usable address"},
		{"not shown", func(s *portState) { s.Addrs = append(s.Addrs[:1:1], netip.MustParsePrefix("fe80::1/64")) },
			line + ", as before, but Addrs were [192.168.1.1/24] and are [192.168.1.1/24 fe80::1/64]"},
		{"the device's", func(s *portState) { s.attr.SMLID = 7 }, line + ", as before, but what its device says of itself"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			now := was
			tt.change(&now)
			if got := now.news(&was, topology.AnyGID); got != tt.want {
				t.Errorf("news %q, want %q", got, tt.want)
			}
		})
	}
}
