package main

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/transport/relay"
)

// script is a mesh that does one thing after another, as the service looks at it.
type script struct {
	stats   relay.Stats
	changed chan struct{}
	calls   []string
}

func (s *script) Relaying() relay.Stats         { return s.stats }
func (s *script) RelayChanged() <-chan struct{} { return s.changed }
func (s *script) Retire() error                 { s.calls = append(s.calls, "retire"); return nil }
func (s *script) Close() error {
	s.calls = append(s.calls, "close")
	s.stats.Now = 0
	return nil
}

// The service ends when nothing is carried after a signal, when its time is up, or at the second one, and says so.
func TestSignals(t *testing.T) {
	tests := []struct {
		name  string
		drain time.Duration
		steps []any // a relay.Stats is what is carried from then on, a signal comes
		told  []string
		said  []string
	}{
		{"nothing is carried", 0, []any{syscall.SIGTERM}, nil, []string{"over"}},
		{"it ends by itself", 0, []any{relay.Stats{Now: 2, Carried: 2, Askers: []string{"a", "c"}}, syscall.SIGTERM, relay.Stats{Carried: 2, Forth: 3 << 30, Back: 1 << 29, Askers: []string{"a", "c"}}},
			[]string{"STATUS=relays for a, c", "STOPPING=1", "STATUS=relays nothing any more: it was 3.5 GiB in 2 circuits in 0s, for a, c"},
			[]string{"terminated: accepts no new circuits; waits for 2 circuits to end, however long that takes", "over"}},
		{"its time is up", 30 * time.Second, []any{relay.Stats{Now: 1, Carried: 1, Askers: []string{"a"}}, syscall.SIGINT},
			[]string{"STATUS=relays for a", "STOPPING=1", "STATUS=relays nothing any more: it was 0 B in 1 circuit in 30s, for a"},
			[]string{"interrupt: accepts no new circuits; waits for 1 circuit to end, for 30s at most", "1 circuit left after 30s, and dropped"}},
		{"the second signal", 0, []any{relay.Stats{Now: 1, Carried: 1, Askers: []string{"a"}}, syscall.SIGTERM, syscall.SIGTERM},
			[]string{"STATUS=relays for a", "STOPPING=1", "STATUS=relays nothing any more: it was 0 B in 1 circuit in 0s, for a"},
			[]string{"terminated again: what is relayed is dropped"}},
		{"one that was over before it was seen", 0, []any{relay.Stats{Carried: 1, Forth: 7, Askers: []string{"a"}}, syscall.SIGTERM},
			[]string{"STATUS=relays for a", "STATUS=relays nothing any more: it was 7 B in 1 circuit in 0s, for a", "STOPPING=1"}, nil},
		{"one that could not be made", 0, []any{relay.Stats{Now: 1}, relay.Stats{Failed: 1}, syscall.SIGTERM}, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mesh := &script{changed: make(chan struct{})}
				var log bytes.Buffer
				var told []string
				s := &service{carrier: mesh, log: slog.New(slog.NewTextHandler(&log, nil)), tell: func(state string) { told = append(told, state) }}
				signals := make(chan os.Signal)
				over := make(chan error, 1)
				go func() { over <- s.run(signals, tt.drain) }()
				for _, step := range tt.steps {
					synctest.Wait() // for the service to wait for what comes
					switch step := step.(type) {
					case relay.Stats:
						mesh.stats = step
						mesh.changed <- struct{}{}
					case os.Signal:
						signals <- step
					}
				}
				if err := <-over; err != nil {
					t.Error(err)
				}
				want := append([]string{"READY=1"}, tt.told...)
				if tt.told == nil {
					want = append(want, "STOPPING=1")
				}
				if diff := cmp.Diff(want, told); diff != "" {
					t.Errorf("the service manager was told (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]string{"retire", "close"}, mesh.calls); diff != "" {
					t.Errorf("the mesh was told (-want +got):\n%s", diff)
				}
				for _, said := range tt.said {
					if !strings.Contains(log.String(), said) {
						t.Errorf("the log lacks %q:\n%s", said, &log)
					}
				}
			})
		})
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 3 << 29: "1.5 GiB", 1 << 63: "8192.0 PiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
