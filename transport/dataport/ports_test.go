package dataport

import (
	"os"
	"testing"

	"ncclmesh/transport/sock"

	"golang.org/x/sys/unix"
)

// Lanes come to a port of the range and from one.
func TestPortRange(t *testing.T) {
	leaks(t)
	first := uint16(20000 + os.Getpid()%600*20)
	ports := sock.PortRange{First: first, Last: first + 19}
	in := func(c *Config) { c.PortRange = ports }
	a, b := newEndpoint(t, in), newEndpoint(t, in)
	to := listen(t, b, lo4)
	_, got := expect(t, b, end(lo4))
	dialled := dial(t, a, end(lo4), to)
	accepted := wait(t, "the lane", got)
	at, err := unix.Getsockname(dialled.Number())
	if err != nil {
		t.Fatal(err)
	}
	for what, port := range map[string]uint16{"listened at": to.Port(), "dialled from": uint16(at.(*unix.SockaddrInet4).Port)} {
		if port < ports.First || port > ports.Last {
			t.Errorf("port %d was %s, want one of %v", port, what, ports)
		}
	}
	closeAll(t, dialled, accepted)
}
