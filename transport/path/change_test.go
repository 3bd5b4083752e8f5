package path_test

import (
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"

	"ncclmesh/handshake"
	"ncclmesh/tests/require"
	"ncclmesh/tests/transporttest"
)

// A change of an address reaches the peers, and paths are proved anew.
func TestAddressChange(t *testing.T) {
	transporttest.Leaks(t)
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
	a, b := transporttest.New(t), transporttest.New(t)
	s, r := transporttest.Connect(t, a, b)
	transporttest.CloseBoth(t, s, r)
	has := func(ports []handshake.Port) bool {
		return slices.ContainsFunc(ports[1].Addrs, func(x handshake.PortAddr) bool {
			return x.Addr.Unmap() == netip.MustParseAddr("192.168.2.1") && x.PrefixLen == 24
		})
	}
	sess := s.Bundle().Session
	if !has(a.Paths().PortsOf(sess)) {
		t.Fatalf("the peer does not tell of 192.168.2.1/24: %+v", a.Paths().PortsOf(sess))
	}
	for _, step := range []struct {
		verb string
		want bool
	}{{"del", false}, {"add", true}} {
		if err := ip("addr", step.verb, "192.168.2.1/24", "dev", "p1"); err != nil {
			t.Fatal(err)
		}
		transporttest.Await(t, "the peer to tell of the change", func() bool { return has(a.Paths().PortsOf(sess)) == step.want })
		if a.Paths().Knows(sess.Peer().Process) {
			t.Error("paths from before the change are still trusted")
		}
		s, r := transporttest.Connect(t, a, b)
		transporttest.CloseBoth(t, s, r)
	}
}
