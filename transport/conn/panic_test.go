package conn_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// broken is a carrier that panics in the method that in names.
type broken struct {
	lane.Carrier
	in string
}

func (b *broken) Send(p *lane.Part) error {
	if b.in == "Send" {
		panic("in Send")
	}
	return b.Carrier.Send(p)
}

func (b *broken) SendGrant(seq uint64, entries []lane.Grant, again bool) error {
	if b.in == "SendGrant" {
		panic("in SendGrant")
	}
	return b.Carrier.SendGrant(seq, entries, again)
}

func (b *broken) Stop() error {
	if b.in == "Stop" {
		panic("in Stop")
	}
	return b.Carrier.Stop()
}

// boundary calls f as the C boundary does: it recovers a panic and fails the connection.
func boundary(c interface{ Fail(error) }, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: panic: %v", fault.ErrInternal, v)
			c.Fail(err)
		}
	}()
	return f()
}

// A panic in a call ends the connection, on both sides, and nothing else: every later call returns, and Close
// releases everything.
func TestPanicInCall(t *testing.T) {
	for _, in := range []string{"Send", "SendGrant", "Stop"} {
		t.Run(in, transporttest.Simulated(func(t *testing.T) {
			a, b := transporttest.New(t), transporttest.New(t)
			s, r := transporttest.Connect(t, a, b)
			m, _ := transporttest.Memory(t, 4096)
			sg, rg := transporttest.Register(t, s, m), transporttest.Register(t, r, m)
			transporttest.Register(t, r, m) // shared, so that the receiver has to be stopped
			for _, l := range slices.Concat(s.Lanes(), r.Lanes()) {
				l.Carrier = &broken{l.Carrier, in}
			}
			isend := func() error { _, err := s.Isend(m.Addr(), 64, 1, sg); return err }
			irecv := func() error { _, err := r.Irecv([]conn.Buffer{transporttest.Buffer(m, 64, 64, 1, rg)}); return err }
			dereg := func() error { return r.DeregMR(rg) }
			var hurt interface{ Fail(error) } = r
			own, other, calls := irecv, isend, []func() error{irecv}
			switch in {
			case "Send":
				hurt, own, other, calls = s, isend, irecv, []func() error{irecv, isend}
			case "Stop":
				calls = []func() error{irecv, dereg}
			}
			var err error
			for i, call := range calls {
				last := i == len(calls)-1
				transporttest.Await(t, "the call", func() bool {
					if !last {
						err = boundary(r, call)
						return true
					}
					err = boundary(hurt, call)
					return err != nil
				})
			}
			if !errors.Is(err, fault.ErrInternal) {
				t.Fatalf("the call that panics: %v", err)
			}
			if err := boundary(hurt, own); err == nil || in != "Stop" && !errors.Is(err, fault.ErrInternal) {
				t.Errorf("the next call: %v, want ErrInternal", err)
			}
			transporttest.Await(t, "the peer's error", func() bool { return errors.Is(other(), fault.ErrPeer) })
			transporttest.Within(t, "Close", func() { _, _ = s.Close(), r.Close() })
		}))
	}
}
