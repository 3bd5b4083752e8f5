package transport_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/fault"
)

// panicLog panics when it writes a record.
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

func panicking(at string) func(*transport.Options) {
	return func(o *transport.Options) { o.Log = slog.New(panicLog{o.Log.Handler(), at}) }
}

// A panic in a goroutine of the transport becomes an error of the object that it serves.
func TestPanicInBackground(t *testing.T) {
	t.Run("set-up at the sender", transporttest.Simulated(func(t *testing.T) {
		a, b := transporttest.New(t, panicking("lane 0")), transporttest.New(t)
		l, h := transporttest.Listen(t, b)
		d := a.Dial(h)
		transporttest.Await(t, "the error", func() bool {
			_, err := d.Poll()
			if err != nil && !errors.Is(err, fault.ErrInternal) {
				t.Fatalf("connect: %v, want ErrInternal", err)
			}
			return err != nil
		})
		if err := errors.Join(d.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	}))
	t.Run("set-up at the receiver", transporttest.Simulated(func(t *testing.T) {
		a, b := transporttest.New(t), transporttest.New(t, panicking("lane 0"))
		l, h := transporttest.Listen(t, b)
		d := a.Dial(h)
		transporttest.Await(t, "the error", func() bool {
			_, err := l.Accept()
			if err != nil && !errors.Is(err, fault.ErrInternal) {
				t.Fatalf("accept: %v, want ErrInternal", err)
			}
			return err != nil
		})
		if err := errors.Join(d.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	}))
	t.Run("trial", transporttest.Simulated(func(t *testing.T) {
		hurry := func(o *transport.Options) { o.Transport, o.ProofWait = transport.TransportRDMA, 100*time.Millisecond }
		a, b := transporttest.New(t, hurry, panicking("no path")), transporttest.New(t)
		transporttest.Stall(t)
		t.Cleanup(func() { transporttest.Heal(t) })
		l, h := transporttest.Listen(t, b)
		d := a.Dial(h)
		transporttest.Await(t, "an end", func() bool {
			s, err := d.Poll()
			return s != nil || err != nil
		})
		if err := errors.Join(d.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	}))
	t.Run("event", transporttest.Simulated(func(t *testing.T) {
		a, b := transporttest.New(t, panicking("device event")), transporttest.New(t)
		s, r := transporttest.Connect(t, a, b)
		transporttest.WorldOf(t).Cables[0].Adapters[0].Raise(ibv.IBV_EVENT_GID_CHANGE)
		l := s.Lanes()[0]
		transporttest.WorldOf(t).Fabric.Break(l.Half().QPN)
		transporttest.Await(t, "the next event", func() bool { return l.Failure() != nil })
		_, _ = s.Close(), r.Close()
	}))
	t.Run("session", transporttest.Simulated(func(t *testing.T) {
		a, b := transporttest.New(t), transporttest.New(t, panicking("was refused"))
		s, r := transporttest.Connect(t, a, b)
		open := &handshake.Open{Conn: 1 << 20, Listen: 1 << 20, Lanes: []handshake.Lane{{Kind: handshake.LaneVerbs}}}
		if err := s.Session.Send(open); err != nil { // for a listener that there is not
			t.Fatal(err)
		}
		transporttest.Await(t, "the end of the session", func() bool { return s.Ended() != nil && r.Ended() != nil })
		if !errors.Is(r.Ended(), fault.ErrInternal) || !errors.Is(s.Ended(), fault.ErrPeer) {
			t.Errorf("where the panic was: %v, want ErrInternal; at the peer: %v, want ErrPeer", r.Ended(), s.Ended())
		}
		transporttest.CloseBoth(t, s, r)
	}))
}
