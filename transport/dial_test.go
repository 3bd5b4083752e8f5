package transport_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
)

// A set-up that is cancelled at any point leaves no resources behind.
func TestAbandon(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a, b := transporttest.New(t), transporttest.New(t)
		for i := range 20 {
			l, h := transporttest.Listen(t, b)
			d := a.Dial(h)
			time.Sleep(time.Duration(i) * 200 * time.Microsecond)
			var err error
			if i%2 == 0 {
				err = errors.Join(d.Close(), l.Close())
			} else {
				err = errors.Join(l.Close(), d.Close())
			}
			if err != nil {
				t.Error(err)
			}
		}
		s, r := transporttest.Connect(t, a, b) // all is well
		transporttest.CloseBoth(t, s, r)
	})
}

// A process may connect to itself.
func TestSelf(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a := transporttest.New(t)
		s, r := transporttest.Connect(t, a, a)
		m, b := transporttest.Memory(t, 1<<20)
		sg, rg := transporttest.Register(t, s, m), transporttest.Register(t, r, m)
		transporttest.Fill(b[:1<<19], 1)
		rq := transporttest.Irecv(t, r, transporttest.Buffer(m, 1<<19, 1<<19, 1, rg))
		transporttest.Done(t, "send", transporttest.Isend(t, s, m, 0, 1<<19, 1, sg))
		transporttest.Done(t, "receive", rq)
		if !bytes.Equal(b[:1<<19], b[1<<19:]) {
			t.Error("the bytes differ")
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// A connection whose first lanes all fail, although their paths were validated, waits for any path, like a connection
// that has lost its lanes.
func TestValidatedPathsFail(t *testing.T) {
	nowhere := netip.MustParseAddr("::ffff:192.0.2.1")
	tests := []struct {
		name string
		over string
		lost bool // nothing passes over RDMA once its ways are proved
		want lane.Kind
	}{
		{"rdma", transport.TransportRDMA, false, lane.Verbs},
		{"tcp", transport.TransportTCP, false, lane.TCP},
		{"no rdma any more", transport.TransportAuto, true, lane.TCP},
	}
	for _, tt := range tests {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			var log transporttest.Log
			over := func(o *transport.Options) { o.Transport = tt.over }
			a, b := transporttest.New(t, over, log.Takes(slog.LevelInfo)), transporttest.New(t, over)
			l, h := transporttest.Listen(t, b)
			t.Cleanup(func() { transporttest.Heal(t) })
			s, r := transporttest.Join(t, a.DialSpoiled(h, func(plan []lane.Spec) {
				for i := range plan {
					plan[i].From.Addr = nowhere
				}
				if tt.lost {
					transporttest.Stall(t)
				}
			}), l)
			m, bytes := transporttest.Memory(t, 1<<20)
			transporttest.Fill(bytes[:1<<19], 1)
			sg, rg := transporttest.Register(t, s, m), transporttest.Register(t, r, m)
			rq := transporttest.Irecv(t, r, transporttest.Buffer(m, 1<<19, 1<<19, 1, rg))
			transporttest.Both(t, "message", transporttest.Isend(t, s, m, 0, 1<<19, 1, sg), rq)
			if !slices.Equal(bytes[:1<<19], bytes[1<<19:]) {
				t.Error("the bytes differ")
			}
			if n := log.Count("the validated paths do not work; no lane is left: waiting for a path"); n != 1 {
				t.Errorf("the sender says %d times that it waits for a path", n)
			}
			for _, b := range []*conn.Conn{&s.Conn, &r.Conn} {
				if kinds := transporttest.Kinds(b); !slices.Equal(kinds, []lane.Kind{tt.want}) {
					t.Errorf("the lanes are %v, want %v", kinds, tt.want)
				}
			}
			transporttest.CloseBoth(t, s, r)
		}))
	}
}
