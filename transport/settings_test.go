package transport_test

import (
	"errors"
	"strings"
	"testing"

	"ncclmesh/handshake"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/fault"
)

// If two processes differ in a setting that must be equal, connect fails on one and accept on the other, both without
// waiting, and each error contains both values.
func TestOtherSettingsAtThePeer(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		topology := func(host, value string) func(*transport.Options) {
			return func(o *transport.Options) {
				o.HostID = host
				o.Settings = []handshake.Setting{{Name: "NCCL_MESH_TOPOLOGY", Value: value, Rule: handshake.RuleSame}}
			}
		}
		a, b := transporttest.NewTCP(t, 1, topology("a", "ring")), transporttest.NewTCP(t, 1, topology("b", "full"))
		l, h := transporttest.Listen(t, a)
		d := b.Dial(h)
		var dialling, accepting error
		transporttest.Await(t, "connect to fail", func() bool { _, dialling = d.Poll(); return dialling != nil })
		transporttest.Await(t, "accept to fail", func() bool { _, accepting = l.Accept(); return accepting != nil })
		for _, side := range []struct {
			err  error
			want string
		}{{dialling, "NCCL_MESH_TOPOLOGY is full on "}, {accepting, "NCCL_MESH_TOPOLOGY is ring on "}} {
			if !errors.Is(side.err, fault.ErrUsage) || errors.Is(side.err, fault.ErrPeer) || !strings.Contains(side.err.Error(), side.want) {
				t.Errorf("%v\nwant ErrUsage, no fault of the peer's, and %q", side.err, side.want)
			}
		}
		if err := errors.Join(d.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
}
