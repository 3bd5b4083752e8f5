package path_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/path"
)

// However many probe connections a peer opens, few are answered at a time and few are queued; those that it
// ends make room.
func TestManyTrials(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		const opened, first = 1000, 1 << 20
		var log transporttest.Log
		a, b := transporttest.New(t), transporttest.New(t, log.Takes(slog.LevelDebug))
		s, r := transporttest.Connect(t, a, b)
		way := s.Lanes()[0].Half() // whose queue pair no proof will come to
		devs, peer := []handshake.Domain{{Port: way.Port, Kind: way.Kind}}, s.Session
		state := func() (running, waiting int) { return b.Paths().Answering(r.Session.Peer().Process) }
		before := ibv.Live()["queue pairs"]
		for i := range uint32(opened) {
			if err := peer.Send(&handshake.Open{Conn: first + i, Domains: devs, Lanes: []handshake.Lane{way}}); err != nil {
				t.Fatal(err)
			}
		}
		const refusals = "it opens too many"
		transporttest.Await(t, "the refusals", func() bool { return log.Count(refusals) == opened-path.MaxProbes-path.MaxQueued })
		if running, waiting := state(); running != path.MaxProbes || waiting != path.MaxQueued {
			t.Errorf("%d trials are answered and %d wait, want %d and %d", running, waiting, path.MaxProbes, path.MaxQueued)
		}
		if n := ibv.Live()["queue pairs"] - before; n > path.MaxProbes {
			t.Errorf("%d queue pairs answer trials, want %d at most", n, path.MaxProbes)
		}
		for i := range uint32(path.MaxProbes + path.MaxQueued) {
			if err := peer.Send(&handshake.Bye{Conn: first + i}); err != nil {
				t.Fatal(err)
			}
		}
		transporttest.Await(t, "the end of the trials", func() bool { running, waiting := state(); return running+waiting == 0 })
		transporttest.CloseBoth(t, s, r)
		s, r = transporttest.Connect(t, a, b)
		transporttest.CloseBoth(t, s, r)
	})
}

// A probe connection that the peer ends immediately after it has opened it is over.
func TestTrialEndedAtOnce(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		const first = 1 << 20
		a, b := transporttest.New(t), transporttest.New(t)
		s, r := transporttest.Connect(t, a, b)
		way, peer := s.Lanes()[0].Half(), s.Session
		for i := range uint32(path.MaxProbes + path.MaxQueued) {
			open := &handshake.Open{Conn: first + i, Domains: []handshake.Domain{{Port: way.Port, Kind: way.Kind}}, Lanes: []handshake.Lane{way}}
			if err := errors.Join(peer.Send(open), peer.Send(&handshake.Bye{Conn: first + i})); err != nil {
				t.Fatal(err)
			}
		}
		s2, r2 := transporttest.Connect(t, a, b) // what was sent before has come
		transporttest.Await(t, "the end of the trials", func() bool {
			running, waiting := b.Paths().Answering(r.Session.Peer().Process)
			return running+waiting == 0
		})
		transporttest.CloseBoth(t, s2, r2)
		transporttest.CloseBoth(t, s, r)
	})
}

// If no packets pass over any cable the user is warned long before LaneWait while both processes run; the
// connection comes up as soon as packets pass, and fails after LaneWait.
func TestDeadPaths(t *testing.T) {
	for _, tt := range []struct {
		name     string
		laneWait time.Duration
	}{{"for a while", time.Hour}, {"for good", 2 * time.Second}} {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			var log transporttest.Log
			patient := func(o *transport.Options) {
				o.LaneWait, o.TimeScale, o.Transport = tt.laneWait, 1, transport.TransportRDMA
			}
			a, b := transporttest.New(t, patient, log.Takes(slog.LevelWarn)), transporttest.New(t, patient)
			transporttest.Stall(t)
			t.Cleanup(func() { transporttest.Heal(t) })
			l, h := transporttest.Listen(t, b)
			d := a.Dial(h)
			blames := func(text string) bool {
				return strings.Contains(text, "IBV_WC_RETRY_EXC_ERR") && strings.Contains(text, "Check the cables")
			}
			if tt.laneWait < time.Hour {
				var err error
				transporttest.Await(t, "the error", func() bool { _, err = d.Poll(); return err != nil })
				if !errors.Is(err, fault.ErrPeer) || !blames(err.Error()) {
					t.Errorf("error %v, want ErrPeer that blames the cables", err)
				}
				if err := errors.Join(d.Close(), l.Close()); err != nil {
					t.Error(err)
				}
				return
			}
			transporttest.Await(t, "the warning", func() bool {
				if s, err := d.Poll(); s != nil || err != nil {
					t.Fatalf("connection %v, error %v", s, err)
				}
				return log.Count("Check the cables") > 0 && log.Count("IBV_WC_RETRY_EXC_ERR") > 0
			})
			transporttest.Heal(t)
			s, r := transporttest.Join(t, d, l)
			transporttest.CloseBoth(t, s, r)
		}))
	}
}

// A search waits for a dead path beside a good one no longer than ProofWait, although its queue pair would
// retry for longer.
func TestDeadPath(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		var log transporttest.Log
		short := func(o *transport.Options) { o.LaneWait, o.ProofWait, o.Timeout = time.Hour, 100*time.Millisecond, 20 }
		a, b := transporttest.New(t, short, log.Takes(slog.LevelDebug)), transporttest.New(t, short)
		transporttest.Stall(t, 1)
		t.Cleanup(func() { transporttest.Heal(t) })
		s, r := transporttest.Connect(t, a, b)
		if len(s.Lanes()) != 1 {
			t.Errorf("%d lanes, want 1", len(s.Lanes()))
		}
		if log.Count("rdma1") == 0 || log.Count("no packet passed within")+log.Count("IBV_WC_RETRY_EXC_ERR") == 0 {
			t.Error("nobody says why the other path is not used")
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// A probe that validated nothing is repeated while a process is slow, because the queue pairs may have failed
// for that reason.
func TestTrialRepeated(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		var log transporttest.Log
		slow := func(o *transport.Options) { o.LaneWait, o.ProofWait, o.TimeScale = time.Hour, time.Nanosecond, 1 } // any answer is late
		a, b := transporttest.New(t, slow, log.Takes(slog.LevelDebug)), transporttest.New(t, slow)
		transporttest.Stall(t)
		l, h := transporttest.Listen(t, b)
		d := a.Dial(h)
		var s *conn.Sender
		accept := func() (r *conn.Receiver) {
			transporttest.Await(t, "the receiver's half", func() bool {
				var err error
				if r, err = l.Accept(); err != nil {
					t.Fatal(err)
				}
				return r != nil
			})
			return r
		}
		poll := func() {
			var err error
			if s == nil {
				if s, err = d.Poll(); err != nil {
					t.Fatal(err)
				}
			}
		}
		transporttest.Await(t, "the second round", func() bool {
			poll()
			if log.Count("a path validation is repeated") > 0 {
				return true
			}
			if s != nil { // the answer had come by when it was looked for, and TCP was next: anew
				transporttest.CloseBoth(t, s, accept())
				a.Paths().Forget(s.Session)
				s, d = nil, a.Dial(h)
			}
			return false
		})
		transporttest.Heal(t)
		transporttest.Await(t, "the connection", func() bool { poll(); return s != nil })
		r := accept()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// If a peer ends during the search, its end is the only reason in the error, in one line, whatever was tried.
func TestPeerEndsMeanwhile(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		var log transporttest.Log
		hour := func(o *transport.Options) { o.LaneWait, o.TimeScale = time.Hour, 1 }
		other := func(o *transport.Options) { o.HostID = "other" }
		a, b := transporttest.New(t, hour, log.Takes(slog.LevelDebug)), transporttest.New(t, hour, other)
		transporttest.Stall(t)
		t.Cleanup(func() { transporttest.Heal(t) })
		_, h := transporttest.Listen(t, b)
		d := a.Dial(h)
		transporttest.Await(t, "the session", func() bool { return log.Count("dialled a session") > 0 })
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		var err error
		transporttest.Await(t, "the error", func() bool { _, err = d.Poll(); return err != nil })
		if !errors.Is(err, fault.ErrPeerGone) || strings.Count(err.Error(), "peer gone") != 1 || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want ErrPeerGone once", err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}
