package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"ncclmesh/handshake"
)

// broken is a carrier that panics where it is told to.
type broken struct {
	carrier
	in string
}

func (b *broken) sendPart(q *Request, g *grant, local, off uint64, n int, m imm, r *Region) error {
	if b.in == "sendPart" {
		panic("in sendPart")
	}
	return b.carrier.sendPart(q, g, local, off, n, m, r)
}

func (b *broken) sendGrant(seq uint64, entries []grant) error {
	if b.in == "sendGrant" {
		panic("in sendGrant")
	}
	return b.carrier.sendGrant(seq, entries)
}

func (b *broken) stop() error {
	if b.in == "stop" {
		panic("in stop")
	}
	return b.carrier.stop()
}

// boundary calls f as NCCL does: a panic ends there, and with it the connection.
func boundary(c *conn, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: panic: %v", ErrInternal, v)
			c.Fail(err)
		}
	}()
	return f()
}

// A panic in a call ends the connection, on both sides, and nothing else: every
// later call returns, and Close gives everything back.
func TestPanicInCall(t *testing.T) {
	for _, in := range []string{"sendPart", "sendGrant", "stop"} {
		t.Run(in, func(t *testing.T) {
			leaks(t)
			a, b := newTransport(t), newTransport(t)
			s, r := connect(t, a, b)
			m, _ := memory(t, 4096)
			sg, rg := register(t, s, m), register(t, r, m)
			register(t, r, m) // shared, so that the receiver has to be stopped
			for _, c := range []*conn{s.conn, r.conn} {
				for _, l := range c.lanes {
					l.carrier = &broken{l.carrier, in}
				}
			}
			isend := func() error { _, err := s.Isend(m.Addr(), 64, 1, sg); return err }
			irecv := func() error { _, err := r.Irecv([]Buffer{{m.Addr() + 64, 64, 1, rg}}); return err }
			dereg := func() error { return r.DeregMR(rg) }
			hurt, calls := r.conn, []func() error{irecv}
			switch in {
			case "sendPart":
				hurt, calls = s.conn, []func() error{irecv, isend}
			case "stop":
				calls = []func() error{irecv, dereg}
			}
			var err error
			for i, call := range calls {
				last := i == len(calls)-1
				await(t, "the call", func() bool {
					c := r.conn
					if last {
						c = hurt
					}
					err = boundary(c, call)
					return !last || err != nil
				})
			}
			if !errors.Is(err, ErrInternal) {
				t.Fatalf("the call that panics: %v", err)
			}
			if err := boundary(hurt, map[bool]func() error{true: isend, false: irecv}[hurt.sending]); err == nil || in != "stop" && !errors.Is(err, ErrInternal) {
				t.Errorf("the next call: %v, want ErrInternal", err)
			}
			other := map[bool]func() error{true: irecv, false: isend}[hurt.sending]
			await(t, "the peer's error", func() bool { return errors.Is(other(), ErrPeer) })
			within(t, "Close", func() { _, _ = s.Close(), r.Close() })
		})
	}
}

// panicLog panics when it is to write something.
type panicLog struct {
	slog.Handler
	at string
}

func (h panicLog) Enabled(context.Context, slog.Level) bool { return true }

func (h panicLog) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, h.at) && r.Level < slog.LevelError {
		panic("while logging " + h.at)
	}
	return h.Handler.Handle(ctx, r)
}

func panicking(at string) func(*Options) {
	return func(o *Options) { o.Log = slog.New(panicLog{o.Log.Handler(), at}) }
}

// A panic in a goroutine of ours is an error of what it serves.
func TestPanicInBackground(t *testing.T) {
	t.Run("set-up at the sender", func(t *testing.T) {
		leaks(t)
		a, b := newTransport(t, panicking("lane 0")), newTransport(t)
		l, h := listen(t, b)
		d := a.Dial(h)
		await(t, "the error", func() bool {
			_, err := d.Poll()
			if err != nil && !errors.Is(err, ErrInternal) {
				t.Fatalf("connect: %v, want ErrInternal", err)
			}
			return err != nil
		})
		if err := errors.Join(d.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Run("set-up at the receiver", func(t *testing.T) {
		leaks(t)
		a, b := newTransport(t), newTransport(t, panicking("lane 0"))
		l, h := listen(t, b)
		d := a.Dial(h)
		await(t, "the error", func() bool {
			_, err := l.Accept()
			if err != nil && !errors.Is(err, ErrInternal) {
				t.Fatalf("accept: %v, want ErrInternal", err)
			}
			return err != nil
		})
		if err := errors.Join(d.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Run("trial", func(t *testing.T) {
		leaks(t)
		a, b := newTransport(t, panicking("no path")), newTransport(t)
		fault(t, "stall")
		t.Cleanup(func() { fault(t, "clear") })
		a.opts.Transport, a.opts.ProofWait = TransportRDMA, a.opts.ProofWait/10
		l, h := listen(t, b)
		d := a.Dial(h)
		await(t, "an end", func() bool {
			s, err := d.Poll()
			return s != nil || err != nil
		})
		if err := errors.Join(d.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Run("event", func(t *testing.T) {
		leaks(t)
		a, b := newTransport(t, panicking("device event")), newTransport(t)
		s, r := connect(t, a, b)
		fault(t, "event", "GID_CHANGE", "a:rdma0")
		fault(t, "event", "QP_FATAL", fmt.Sprint(lane0(s.conn).qp.Num()))
		await(t, "the next event", func() bool { return s.ended() != nil })
		_, _ = s.Close(), r.Close()
	})
	t.Run("session", func(t *testing.T) {
		leaks(t)
		a, b := newTransport(t), newTransport(t, panicking("was refused"))
		s, r := connect(t, a, b)
		open := &handshake.Open{Conn: 1 << 20, Listen: 1 << 20, Lanes: []handshake.Lane{{Kind: handshake.LaneVerbs}}}
		if err := s.s.Send(open); err != nil { // for a listener that there is not
			t.Fatal(err)
		}
		await(t, "the end of the session", func() bool { return s.ended() != nil && r.ended() != nil })
		if !errors.Is(r.ended(), ErrInternal) || !errors.Is(s.ended(), ErrPeer) {
			t.Errorf("where the panic was: %v, want ErrInternal; at the peer: %v, want ErrPeer", r.ended(), s.ended())
		}
		closeBoth(t, s, r)
	})
}
