package dataport

import (
	"testing"

	"ncclmesh/tests/sim/hosts"
	"ncclmesh/transport/sock"
)

// Lanes use a port of the range on both sides.
func TestPortRange(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		ports := sock.PortRange{First: 20000, Last: 20019}
		in := func(c *Config) { c.PortRange = ports }
		a, b := newEndpoint(t, in), newEndpoint(t, in)
		to := listen(t, b, lo4)
		got := make(chan sock.Conn, 1)
		if _, err := b.ExpectHop(end(lo4), func(c sock.Conn) { got <- c }); err != nil {
			t.Fatal(err)
		}
		dialled := dial(t, a, end(lo4), to)
		accepted := wait(t, "the lane", got)
		for what, port := range map[string]uint16{"listened at": to.Port(), "dialled from": accepted.Remote().Port()} {
			if port < ports.First || port > ports.Last {
				t.Errorf("port %d was %s, want one of %v", port, what, ports)
			}
		}
		closeAll(t, dialled)
		if err := accepted.Close(); err != nil {
			t.Error(err)
		}
	})
}
