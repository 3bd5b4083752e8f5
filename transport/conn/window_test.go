package conn_test

import (
	"bytes"
	"errors"
	"testing"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// 256 sub-receives may be outstanding, then Irecv returns nil; sends are limited in the same way.
func TestWindow(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a, b := transporttest.New(t), transporttest.New(t)
		s, r := transporttest.Connect(t, a, b)
		sm, sb := transporttest.Memory(t, 4096)
		rm, rb := transporttest.Memory(t, 2*lane.Window*16)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		transporttest.Fill(sb, 1)
		for round := range 3 {
			var recvs, sends []*conn.Request
			for i := range 2 * lane.Window {
				q, err := r.Irecv([]conn.Buffer{transporttest.Buffer(rm, i*16, 16, 1, rg)})
				if err != nil {
					t.Fatal(err)
				}
				if q == nil {
					break
				}
				recvs = append(recvs, q)
			}
			if len(recvs) != lane.Window {
				t.Fatalf("round %d: %d receives outstanding, want %d", round, len(recvs), lane.Window)
			}
			for range lane.Window {
				sends = append(sends, transporttest.Isend(t, s, sm, 0, 16, 1, sg))
			}
			if q, err := s.Isend(sm.Addr(), 16, 1, sg); q != nil || err != nil {
				t.Fatalf("a send without a grant: %v, %v", q, err)
			}
			for i := range lane.Window { // in an arbitrary order
				transporttest.Done(t, "send", sends[lane.Window-1-i])
				transporttest.Done(t, "receive", recvs[(i*3)%lane.Window])
			}
			for i := range lane.Window {
				if !bytes.Equal(rb[i*16:i*16+16], sb[:16]) {
					t.Fatalf("round %d: message %d differs", round, i)
				}
			}
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// A wrong call returns an error that says what is wrong, and does not end the connection.
func TestMisuse(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a, b := transporttest.New(t), transporttest.New(t)
		s, r := transporttest.Connect(t, a, b)
		m, _ := transporttest.Memory(t, 4096)
		sg, rg := transporttest.Register(t, s, m), transporttest.Register(t, r, m)
		rq := transporttest.Irecv(t, r, transporttest.Buffer(m, 0, 64, 1, rg))
		tests := []struct {
			name string
			call func() error
		}{
			{"send beyond the region", func() error { _, err := s.Isend(m.Addr()+4000, 97, 1, sg); return err }},
			{"send before the region", func() error { _, err := s.Isend(m.Addr()-1, 1, 1, sg); return err }},
			{"send without a region", func() error { _, err := s.Isend(m.Addr(), 1, 1, nil); return err }},
			{"negative size", func() error { _, err := s.Isend(m.Addr(), -1, 1, sg); return err }},
			{"receive of nothing", func() error { _, err := r.Irecv(nil); return err }},
			{"receive of nine", func() error { _, err := r.Irecv(make([]conn.Buffer, 9)); return err }},
			{"receive beyond the region", func() error { _, err := r.Irecv([]conn.Buffer{transporttest.Buffer(m, 0, 4097, 1, rg)}); return err }},
			{"foreign region", func() error { return s.DeregMR(rg) }},
		}
		for _, tt := range tests {
			if err := tt.call(); !errors.Is(err, fault.ErrUsage) {
				t.Errorf("%s: %v, want ErrUsage", tt.name, err)
			}
		}
		transporttest.Done(t, "send", transporttest.Isend(t, s, m, 128, 64, 1, sg))
		transporttest.Done(t, "receive", rq)
		if _, err := rq.Test(nil); !errors.Is(err, fault.ErrUsage) {
			t.Errorf("test of a finished request: %v, want ErrUsage", err)
		}
		transporttest.CloseBoth(t, s, r)
	})
}
