package control

import (
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/sim/hosts"
	"ncclmesh/transport/limit"
	"ncclmesh/transport/sock"
)

// somePorts are some below those that a host chooses from.
func somePorts(n uint16) sock.PortRange { return sock.PortRange{First: 20000, Last: 20000 + n - 1} }

// A process listens on a port of its range and dials from one.
func TestPortRange(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		ports := somePorts(20)
		within := func(what string, port uint16) {
			t.Helper()
			if port < ports.First || port > ports.Last {
				t.Errorf("%s is %d, want one of %v", what, port, ports)
			}
		}
		a, b := newNode(t, nil), newNode(t, func(c *Config) { c.PortRange = ports })
		within("the port of the listener", b.Port())
		_, h := a.invite()
		s := b.dial(h)
		within("the port dialled from", s.LocalAddr().Port())
		if got := s.RemoteAddr().Port(); got != a.Port() {
			t.Errorf("port %d was dialled, want %d", got, a.Port())
		}
	})
}

// The error of an exhausted range names it, for the listener and for the dialler, and does not blame the peer.
func TestPortRangeUsedUp(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		ports := somePorts(1)
		a := newNode(t, nil)
		b := newNode(t, func(c *Config) { c.PortRange, c.LaneWait = ports, time.Nanosecond })
		_, h := a.invite()
		_, dialled := b.Dial(t.Context(), h)
		_, listened := New(Config{Addrs: b.addrs, PortRange: ports, Network: b.process})
		for what, err := range map[string]error{"dial": dialled, "listen": listened} {
			if !limit.IsOwn(err) || !strings.Contains(err.Error(), "all ports of NCCL_MESH_PORTS="+ports.String()+" are in use on this machine") {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
