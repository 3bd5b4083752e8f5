package conn_test

import (
	"testing"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
)

// A program that calls only isend, and for which no call succeeds, still gets its earlier messages through:
// these calls hand the rest of them to the kernel.
func TestIsendMovesWhatWasSent(t *testing.T) {
	const size, tag, other = 2000, 1, 2
	tests := []struct {
		name   string
		size   int // of the messages that Isend does not take
		before int // short messages that were sent before the large one, and were not tested
	}{
		{"no grant", size, 0},
		{"short messages, until as many are under way as may be", 8, 0},
		{"no request is free", size, lane.Window - 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
				large := transporttest.Most(s)
				sm, _ := transporttest.Memory(t, large)
				rm, _ := transporttest.Memory(t, large)
				sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
				var all []*conn.Request
				for range tt.before {
					q := transporttest.Irecv(t, r, transporttest.Buffer(rm, 0, size, tag, rg))
					all = append(all, transporttest.Isend(t, s, sm, 0, size, tag, sg))
					transporttest.Done(t, "a receive", q)
				}
				rq := transporttest.Irecv(t, r, transporttest.Buffer(rm, 0, large, tag, rg))
				all = append(all, transporttest.Isend(t, s, sm, 0, large, tag, sg))
				if tt.before > 0 { // there is a grant, but no lane has room
					all = append(all, transporttest.Irecv(t, r, transporttest.Buffer(rm, 0, size, other, rg)))
				}
				transporttest.Await(t, "the large message", func() bool {
					q, err := s.Isend(sm.Addr(), tt.size, other, sg)
					if err != nil {
						t.Fatal(err)
					}
					if q != nil {
						all = append(all, q)
					}
					done, err := rq.Test(nil)
					if err != nil {
						t.Fatal(err)
					}
					return done
				})
				if tt.before == 0 {
					for range len(all) - 1 { // the eager messages
						all = append(all, transporttest.Irecv(t, r, transporttest.Buffer(rm, 0, size, other, rg)))
					}
				} else {
					transporttest.Both(t, "a send, whose request is free then", all[0])
					all = append(all[1:], transporttest.Isend(t, s, sm, 0, size, other, sg))
				}
				transporttest.Both(t, "the rest", all...)
				transporttest.CloseBoth(t, s, r)
			})
		})
	}
}

// A program that calls only irecv, and for which no call succeeds, still receives the messages for its
// earlier receives.
func TestIrecvMovesWhatComes(t *testing.T) {
	transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		large := transporttest.Most(s)
		sm, _ := transporttest.Memory(t, large)
		rm, _ := transporttest.Memory(t, large)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		all := []*conn.Request{transporttest.Irecv(t, r, transporttest.Buffer(rm, 0, large, 1, rg))}
		for range lane.Window - 1 {
			all = append(all, transporttest.Irecv(t, r, transporttest.Buffer(rm, 0, 8, 2, rg)))
		}
		sq := transporttest.Isend(t, s, sm, 0, large, 1, sg)
		transporttest.Await(t, "the send", func() bool {
			if q, err := r.Irecv([]conn.Buffer{transporttest.Buffer(rm, 0, 8, 3, rg)}); q != nil || err != nil {
				t.Fatalf("a receive beyond the window: %v, %v", q, err)
			}
			done, err := sq.Test(nil)
			if err != nil {
				t.Fatal(err)
			}
			return done
		})
		for range lane.Window - 1 {
			all = append(all, transporttest.Isend(t, s, sm, 0, 8, 2, sg))
		}
		transporttest.Both(t, "the rest", all...)
		transporttest.CloseBoth(t, s, r)
	})
}
