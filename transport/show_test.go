package transport_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/stats"
	"ncclmesh/transport/window"
)

// shown is the page of a transport as other processes see it.
func shown(t *testing.T, tr *transport.Transport) *stats.Snapshot {
	t.Helper()
	f, who, err := window.Look(t.Context(), tr.Window())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if want := (window.Owner{PID: os.Getpid(), UID: os.Geteuid()}); who != want {
		t.Errorf("it is %+v's, want %+v", who, want)
	}
	s, err := stats.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The page shows exactly the bytes that were sent and received, while a connection is open and after it was closed.
func TestShown(t *testing.T) {
	kinds := []struct {
		name string
		make func(t *testing.T) *transport.Transport
		kind stats.Carrier
		ways int
	}{
		{"rdma", func(t *testing.T) *transport.Transport { return transporttest.New(t) }, stats.RDMA, 2},
		{"tcp", func(t *testing.T) *transport.Transport { return transporttest.NewTCP(t, 2) }, stats.TCP, 1},
	}
	for _, tt := range kinds {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			from, to := tt.make(t), tt.make(t)
			from.UsedBy(12)
			s, r := transporttest.Connect(t, from, to)
			const size, messages = 200_000, 20
			sm, _ := transporttest.Memory(t, size)
			rm, _ := transporttest.Memory(t, size)
			sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
			for range messages {
				rq := transporttest.Irecv(t, r, conn.Buffer{Addr: rm.Addr(), Size: size, Region: rg})
				transporttest.Both(t, "message", transporttest.Isend(t, s, sm, 0, size, 0, sg), rq)
			}
			shown := func(t *testing.T, tr *transport.Transport) *stats.Snapshot {
				s, err := transporttest.WorldOf(t).Page(tr).Snapshot()
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			sent, received := shown(t, from), shown(t, to)
			for _, s := range []*stats.Snapshot{sent, received} {
				if len(s.Conns) != 1 || s.Conns[0].Bytes != size*messages || s.Conns[0].Messages != messages || len(s.Lanes) < tt.ways || len(s.Ports) == 0 {
					t.Errorf("connections %+v, %d lanes, ports %+v", s.Conns, len(s.Lanes), s.Ports)
				}
			}
			if sent.Process.PID != 1001 || sent.Vtable != 12 || sent.Process.Kind != stats.Job || !sent.Conns[0].Sending || received.Conns[0].Sending {
				t.Errorf("%+v of version %d, connection %+v", sent.Process, sent.Vtable, sent.Conns)
			}
			transporttest.CloseBoth(t, s, r)
			check := func(what string, s *stats.Snapshot, of func(stats.PathState) (this, other stats.Volume)) {
				var all, others stats.Volume
				for _, w := range s.Paths {
					this, other := of(w)
					all.Bytes, others.Bytes = all.Bytes+this.Bytes, others.Bytes+other.Bytes
					if w.Kind != tt.kind || w.Failures > 0 {
						t.Errorf("%s over %+v", what, w)
					}
				}
				if all.Bytes != size*messages || others.Bytes != 0 {
					t.Errorf("%s: %d bytes, %d the other way; want %d", what, all.Bytes, others.Bytes, size*messages)
				}
			}
			for _, when := range []string{"open", "closed"} {
				if when == "closed" {
					transporttest.Await(t, "the connection's end", func() bool { return len(shown(t, from).Conns)+len(shown(t, to).Conns) == 0 })
					sent, received = shown(t, from), shown(t, to)
				}
				check(when+", sent", sent, func(w stats.PathState) (a, b stats.Volume) { return w.Sent, w.Received })
				check(when+", received", received, func(w stats.PathState) (a, b stats.Volume) { return w.Received, w.Sent })
			}
			if len(sent.Lanes)+len(received.Lanes) > 0 {
				t.Errorf("lanes are left: %+v, %+v", sent.Lanes, received.Lanes)
			}
		}))
	}
}

// If the page is disabled there is none; if it cannot be opened there is a warning, and the mesh works.
func TestNotShown(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		where := func(at string) func(*transport.Options) {
			return func(o *transport.Options) { o.Machine.Page, o.Status = nil, at }
		}
		var log transporttest.Log
		silent := transporttest.NewTCP(t, 1, where(transport.StatusOff))
		failing := transporttest.NewTCP(t, 1, where("/no/such/directory/socket"), log.Takes(slog.LevelWarn))
		if silent.Page() != nil {
			t.Error("there is a page")
		}
		for _, tr := range []*transport.Transport{silent, failing} {
			if _, _, err := window.Look(t.Context(), tr.Window()); err == nil {
				t.Error("it can be looked at")
			}
		}
		s, r := transporttest.Connect(t, silent, failing)
		if b := &s.Conn; !strings.Contains(b.String(), " conn ") || b.Count.Bytes.Value() != 0 {
			t.Errorf("%v", b)
		}
		transporttest.CloseBoth(t, s, r)
		if n := log.Count("ncclmesh status will not see this process"); n != 1 {
			t.Errorf("%d warnings, want 1", n)
		}
	})
}

// A process publishes its page in the directory of Options.Status.
func TestShownInADirectory(t *testing.T) {
	transporttest.Leaks(t)
	dir := t.TempDir()
	transporttest.NewTCP(t, 1, local, func(o *transport.Options) { o.Status = dir })
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 1 {
		t.Errorf("in the directory: %v, %v", names, err)
	}
}

// Warnings are kept on the page with their attributes.
func TestWarningsAreShown(t *testing.T) {
	transporttest.Leaks(t)
	tr := transporttest.NewTCP(t, 1, local)
	log := tr.Log().With("node", "a")
	log.Info("not that")
	log.Warn("a port is not used", "err", os.ErrPermission)
	words := shown(t, tr).Notices
	if n := len(words); n == 0 || words[n-1].Text != "a port is not used, err=permission denied" || words[n-1].At.IsZero() {
		t.Errorf("%+v", words)
	}
}
