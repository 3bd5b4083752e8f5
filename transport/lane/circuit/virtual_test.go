package circuit_test

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/tests/sim/adapter"
	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/circuit"
	"ncclmesh/transport/relay/hop"
	"ncclmesh/transport/topology"
)

// expected holds the registration of an end that waits for a circuit.
type expected struct {
	lane.Circuits
	arrive lane.Deliver
}

func (e *expected) Expect(_ uint64, arrive lane.Deliver, _ func(error)) error {
	e.arrive = arrive
	return nil
}
func (e *expected) Cancel(uint64) {}

// newVirtualEnd creates the receiver's end of a circuit that has not been opened yet, on a simulated adapter.
func newVirtualEnd(t *testing.T, b *bus.Bus) (lane.Carrier, *expected, *adapter.Device) {
	t.Helper()
	p, from, d := transporttest.VerbsPort(t, b)
	circuits := &expected{}
	port := circuit.NewPort(p, circuit.Options{Circuits: circuits, GIDs: topology.AnyGID})
	conn := &lane.Shared{ID: 1}
	domain, err := port.Open(conn, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := lane.New(conn, 0, lane.Spec{Port: port, From: from, Weight: 1})
	if l.Carrier, err = domain.NewLane(l); err != nil {
		t.Fatal(err)
	}
	if err := l.Carrier.Connect(t.Context(), handshake.Lane{}, 0); err != nil {
		t.Fatal(err)
	}
	return l.Carrier, circuits, d
}

// A goroutine that stops or closes an end waits while another one connects the end to a circuit or destroys it,
// which may take long; virtual time goes on meanwhile.
func TestSlowVerbs(t *testing.T) {
	const slow = time.Second
	for _, tt := range []struct {
		name, verb string
		begin      func(t *testing.T, c lane.Carrier, e *expected)
	}{
		{"connecting", "modify_qp", func(t *testing.T, _ lane.Carrier, e *expected) {
			m := &handshake.CircuitDeliver{Half: handshake.Lane{Addr: netip.MustParseAddr("::ffff:10.0.0.1"), QPN: 1, MTU: ibv.IBV_MTU_1024}, Read: handshake.Ring{Size: hop.MinRing}, Write: handshake.Ring{Size: hop.BackRing}}
			if _, err := e.arrive(t.Context(), m, func(string) {}); err != nil {
				t.Error(err)
			}
		}},
		{"destroying", "destroy_qp", func(t *testing.T, c lane.Carrier, _ *expected) {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bus.Run(t, 1, func(t *testing.T, b *bus.Bus) {
				clock := b.Source("test")
				c, e, d := newVirtualEnd(t, b)
				d.Slow(tt.verb, slow)
				var wg sync.WaitGroup
				began := b.Now()
				wg.Go(func() { tt.begin(t, c, e) })
				clock.Sleep(slow / 10)
				wg.Go(func() {
					if err := c.Close(); err != nil {
						t.Error(err)
					}
					if took := b.Now() - began; took < slow {
						t.Errorf("closed after %v, while another was at it for %v", took, slow)
					}
				})
				clock.Sleep(10 * slow)
				wg.Wait()
			})
		})
	}
}
