package verbs_test

import (
	"log/slog"
	"math"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/ibv"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
)

func without(o *transport.Options) { o.NoECE = true }

// options are those in effect of the queue pairs that a connection has over a device.
func options(t *testing.T, c *conn.Conn, device string) (all []uint32) {
	t.Helper()
	for _, l := range c.Lanes() {
		if !l.InService() || l.Port.Now().Device != device {
			continue
		}
		n, ok := transporttest.WorldOf(t).Fabric.ECEOptions(uint32(l.Carrier.Number()))
		if !ok {
			t.Errorf("%v has no queue pair %#x", l, l.Carrier.Number())
		}
		all = append(all, n)
	}
	return all
}

// pass sends a message and wants it to arrive.
func pass(t *testing.T, s *conn.Sender, r *conn.Receiver) {
	t.Helper()
	const n = 1 << 20
	sm, sb := transporttest.Memory(t, n)
	rm, rb := transporttest.Memory(t, n)
	sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
	transporttest.Fill(sb, 1)
	transporttest.Both(t, "a message", transporttest.Irecv(t, r, conn.Buffer{Addr: rm.Addr(), Size: n, Region: rg}), transporttest.Isend(t, s, sm, 0, n, 0, sg))
	if !slices.Equal(sb, rb) {
		t.Error("the message differs")
	}
}

// Two ends agree on what both adapters can do, and one that does without is enough to do without.
func TestECE(t *testing.T) {
	const mellanox = 0x15b3
	seven := ibv.ECE{VendorID: mellanox, Options: 0x10000007}
	thirteen := ibv.ECE{VendorID: mellanox, Options: 0x1000000d}
	for _, tt := range []struct {
		name     string
		from, to ibv.ECE // what the adapters know
		change   [2][]func(*transport.Options)
		want     uint32
	}{
		{"both know some", seven, thirteen, [2][]func(*transport.Options){}, 0x10000005},
		{"nothing in common", ibv.ECE{VendorID: mellanox, Options: 1}, ibv.ECE{VendorID: mellanox, Options: 2}, [2][]func(*transport.Options){}, 0},
		{"neither knows any", ibv.ECE{}, ibv.ECE{}, [2][]func(*transport.Options){}, 0},
		{"the sender knows none", ibv.ECE{}, seven, [2][]func(*transport.Options){}, 0},
		{"the receiver knows none", seven, ibv.ECE{}, [2][]func(*transport.Options){}, 0},
		{"another vendor", seven, ibv.ECE{VendorID: mellanox + 1, Options: 7}, [2][]func(*transport.Options){}, 0},
		{"the sender's firmware lacks them", ibv.ECE{VendorID: mellanox}, seven, [2][]func(*transport.Options){}, 0},
		{"the receiver's firmware lacks them", seven, ibv.ECE{VendorID: mellanox}, [2][]func(*transport.Options){}, 0},
		{"the sender's user wants none", seven, thirteen, [2][]func(*transport.Options){{without}, nil}, 0},
		{"the receiver's user wants none", seven, thirteen, [2][]func(*transport.Options){nil, {without}}, 0},
	} {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			w := transporttest.WorldOf(t)
			for k, know := range []ibv.ECE{tt.from, tt.to} {
				w.Cables[0].Adapters[k].Device.KnowECE(know.VendorID, know.Options)
			}
			s, r := transporttest.Connect(t, transporttest.New(t, tt.change[0]...), transporttest.New(t, tt.change[1]...))
			for _, c := range []*conn.Conn{&s.Conn, &r.Conn} {
				if diff := cmp.Diff([]uint32{tt.want}, options(t, c, "rdma0")); diff != "" {
					t.Errorf("%v: options in effect (-want +got):\n%s", c, diff)
				}
			}
			pass(t, s, r)
			transporttest.CloseBoth(t, s, r)
			for _, what := range []string{"not agreed request", "not agreed acknowledgement"} {
				if n := w.Fabric.Counts()[what]; n > 0 {
					t.Errorf("%s: %d", what, n)
				}
			}
		}))
	}
}

// A verb of ECE that fails takes the lane out, with one line that names the verb and what to do. The connection goes on over the
// other cable.
func TestECEFails(t *testing.T) {
	for _, tt := range []struct {
		name, verb string
		end, skip  int
	}{
		{"the receiver cannot set them", "set_ece", 1, 0},
		{"the sender cannot set them", "set_ece", 0, 0},
		{"the receiver cannot tell what remains", "query_ece", 1, 1},
	} {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			w := transporttest.WorldOf(t)
			for _, a := range w.Cables[0].Adapters {
				a.Device.KnowECE(0x15b3, 7)
			}
			w.Cables[0].Adapters[tt.end].Device.Refuse(tt.verb, syscall.EINVAL, tt.skip, math.MaxInt)
			var log transporttest.Log
			s, r := transporttest.Connect(t, transporttest.New(t, log.Takes(slog.LevelWarn)), transporttest.New(t, log.Takes(slog.LevelWarn)))
			for _, c := range []*conn.Conn{&s.Conn, &r.Conn} {
				if got := options(t, c, "rdma0"); len(got) != 0 {
					t.Errorf("%v has %d lanes over the cable", c, len(got))
				}
				if kinds := transporttest.Kinds(c); !slices.Equal(kinds, []lane.Kind{lane.Verbs}) {
					t.Errorf("%v has lanes of the kinds %v", c, kinds)
				}
			}
			pass(t, s, r)
			transporttest.CloseBoth(t, s, r)
			want := "rdma0:1 (p0): lanes fail: ibv: " + tt.verb + " on rdma0: "
			if a, b, c := log.Count(want), log.Count("set NCCL_IB_ECE_ENABLE=0"), log.Count("level="); a != 1 || b != 1 || c != 1 {
				t.Errorf("%d lines of %d warnings begin with %q, and %d say what to do", a, c, want, b)
			}
		}))
	}
}

// The ends of each hop of a circuit agree: from one machine through two relays on it to the other machine.
func TestECEOfCircuits(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		w := transporttest.WorldOf(t)
		for k, can := range []uint32{0x17, 0x2d} {
			w.Cables[0].Adapters[k].Device.KnowECE(0x15b3, can)
		}
		s, r := transporttest.ConnectThrough(t, transporttest.New(t), transporttest.New(t), transporttest.NewCircuits(t, 2), lane.Circuit)
		pass(t, s, r)
		var got [2][]uint32
		for k, a := range w.Cables[0].Adapters {
			for _, qpn := range a.Device.QueuePairs() {
				n, _ := w.Fabric.ECEOptions(qpn)
				got[k] = append(got[k], n)
			}
			slices.Sort(got[k])
		}
		want := [2][]uint32{{5, 0x17, 0x17, 0x17, 0x17}, {5}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("options in effect on both machines (-want +got):\n%s", diff)
		}
		transporttest.CloseBoth(t, s, r)
	})
}
