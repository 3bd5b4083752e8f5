package conn_test

import (
	"slices"
	"testing"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
)

// A lane that slows down while messages flow gets a smaller part of them, and its own part again when it is as fast as before.
func TestSlowLaneGetsLess(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		const size, depth = 1 << 20, 4
		s, r := transporttest.Connect(t, transporttest.New(t), transporttest.New(t))
		m, _ := transporttest.Memory(t, size)
		sg, rg := transporttest.Register(t, s, m), transporttest.Register(t, r, m)
		lanes := s.Lanes()
		fast := slices.MaxFunc(lanes, func(a, b *lane.Lane) int { return int(a.Weight - b.Weight) })
		port := transporttest.WorldOf(t).Cables[0].Adapters[0] // of the machine that sends
		carry := func(messages int) (part float64) {
			all, own := uint64(0), fast.Bytes.Value()
			for _, l := range lanes {
				all -= l.Bytes.Value()
			}
			for range messages / depth {
				var requests []*conn.Request
				for range depth {
					requests = append(requests, transporttest.Irecv(t, r, transporttest.Buffer(m, 0, size, 1, rg)))
				}
				for range depth {
					requests = append(requests, transporttest.Isend(t, s, m, 0, size, 1, sg))
				}
				transporttest.Both(t, "the messages", requests...)
			}
			for _, l := range lanes {
				all += l.Bytes.Value()
			}
			return float64(fast.Bytes.Value()-own) / float64(all)
		}
		for _, tt := range []struct {
			name        string
			rate        int64   // of the cable of 100 Gb/s, in bytes a second; the other one has 50
			least, most float64 // its part
		}{
			{"as at first", 0, 0.6, 0.72},
			{"at an eighth", 100e9 / 8 / 8, 0.1, 0.3},
			{"as before", 0, 0.6, 0.72},
		} {
			port.Slow(tt.rate)
			carry(200) // until that has been measured
			if part := carry(100); part < tt.least || part > tt.most {
				t.Errorf("%s: it carries %.3f, want %g to %g", tt.name, part, tt.least, tt.most)
			} else {
				t.Logf("%s: %.3f", tt.name, part)
			}
		}
		transporttest.CloseBoth(t, s, r)
	})
}
