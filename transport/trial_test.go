package transport

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"ncclmesh/handshake"
)

// debugLog makes a transport write all that it says into a log that the test looks into.
func debugLog(log *captured) func(*Options) {
	return func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
}

// However many trials a peer opens and leaves, few are answered at a time and few wait; those that it ends make room.
func TestManyTrials(t *testing.T) {
	leaks(t)
	const opened, first = 1000, 1 << 20
	var log captured
	a, b := newTransport(t), newTransport(t, debugLog(&log))
	s, r := connect(t, a, b)
	from, _ := halves(t, a, b, s, r)
	devs, lanes := from.offers(1)
	before := len(b.connsOf(r.s))
	state := func() (running, waiting int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if k := b.answers[r.s.Peer().Process]; k != nil {
			return k.running, len(k.waiting)
		}
		return 0, 0
	}
	for i := range uint32(opened) {
		if err := s.s.Send(&handshake.Open{Conn: first + i, Base: uint64(from.wireBase), Devices: devs, Lanes: lanes}); err != nil {
			t.Fatal(err)
		}
	}
	const refusals = "it opens too many"
	await(t, "the refusals", func() bool { return log.count(refusals) == opened-maxTrials-maxQueued })
	if running, waiting := state(); running != maxTrials || waiting != maxQueued || len(b.connsOf(r.s)) > before+maxTrials {
		t.Errorf("%d trials are answered over %d connections and %d wait, want %d and %d", running, len(b.connsOf(r.s))-before, waiting, maxTrials, maxQueued)
	}
	for i := range uint32(maxTrials + maxQueued) {
		if err := s.s.Send(&handshake.Bye{Conn: first + i}); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the end of the trials", func() bool { running, waiting := state(); return running+waiting == 0 })
	closeBoth(t, s, r)
	s, r = connect(t, a, b)
	closeBoth(t, s, r)
}

// Cables over which nothing passes are an error that says so long before LaneWait, when both processes run.
func TestDeadPaths(t *testing.T) {
	leaks(t)
	hour := func(o *Options) { o.LaneWait, o.TimeScale, o.Transport = time.Hour, 1, TransportRDMA }
	a, b := newTransport(t, hour), newTransport(t, hour)
	fault(t, "stall")
	t.Cleanup(func() { fault(t, "clear") })
	l, h := listen(t, b)
	d := a.Dial(h)
	var err error
	await(t, "the error", func() bool { _, err = d.Poll(); return err != nil })
	if !errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), "transport retry counter exceeded") || !strings.Contains(err.Error(), "Check the cables") {
		t.Errorf("error %v, want ErrPeer that blames the cables", err)
	}
	if err := errors.Join(d.Close(), l.Close()); err != nil {
		t.Error(err)
	}
}

// A dead path beside a good one is waited for no longer than ProofWait, though its queue pair would try for longer.
func TestDeadPath(t *testing.T) {
	leaks(t)
	var log captured
	short := func(o *Options) { o.LaneWait, o.ProofWait, o.Timeout = time.Hour, 100*time.Millisecond, 20 }
	a, b := newTransport(t, short, debugLog(&log)), newTransport(t, short)
	fault(t, "stall", "port=a:rdma1")
	t.Cleanup(func() { fault(t, "clear") })
	s, r := connect(t, a, b)
	if len(s.lanes) != 1 {
		t.Errorf("%d lanes, want 1", len(s.lanes))
	}
	if log.count("rdma1") == 0 || log.count("no packet passed within")+log.count("transport retry counter exceeded") == 0 {
		t.Error("nobody says why the other path is not used")
	}
	closeBoth(t, s, r)
}

// A trial in which nothing passed is repeated while a process is slow, as then the queue pairs may have failed for that.
func TestTrialRepeated(t *testing.T) {
	leaks(t)
	var log captured
	slow := func(o *Options) { o.LaneWait, o.ProofWait, o.TimeScale = time.Hour, time.Nanosecond, 1 } // any answer is late
	a, b := newTransport(t, slow, debugLog(&log)), newTransport(t, slow)
	fault(t, "stall")
	l, h := listen(t, b)
	d := a.Dial(h)
	await(t, "the second round", func() bool { return log.count("a trial is repeated") > 0 })
	fault(t, "clear")
	var s *SendConn
	await(t, "the connection", func() bool {
		var err error
		if s, err = d.Poll(); err != nil {
			t.Fatal(err)
		}
		return s != nil
	})
	r, err := l.Accept()
	for ; r == nil && err == nil; r, err = l.Accept() {
	}
	if err = errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	closeBoth(t, s, r)
}

// A queue pair of a trial fails in time to tell, whatever the user has set for the others.
func TestAckTimeout(t *testing.T) {
	for _, tt := range []struct {
		set         int
		scale       float64
		trial, conn int
	}{
		{-1, 1, 14, 14}, {0, 1, 14, 0}, {10, 1, 10, 10}, {22, 1, 14, 22}, {-1, 5, 17, 17}, {22, 5, 17, 22}, {16, 5, 16, 16},
	} {
		o := Options{Timeout: tt.set, TimeScale: tt.scale}.withDefaults()
		if trial, conn := o.ackTimeout(true), o.ackTimeout(false); trial != tt.trial || conn != tt.conn {
			t.Errorf("%s: %d for a trial and %d for a connection, want %d and %d", fmt.Sprint(tt.set, " scaled by ", tt.scale), trial, conn, tt.trial, tt.conn)
		}
	}
}
