package accept

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"ncclmesh/tests/sim/hosts"
	"ncclmesh/transport/sock"
)

// world is an Acceptor with one listener, on a simulated host.
type world struct {
	*hosts.Test
	a    *Acceptor
	to   netip.AddrPort
	text text
}

func newWorld(t *hosts.Test, handshake func(*Conn) error) *world {
	t.Helper()
	w := &world{Test: t}
	p := t.Process("host")
	w.a = New(Config{
		Name: "port", Handshake: handshake, Timeout: time.Second, MaxPending: 3, PerSource: 2, Descriptors: 1 << 16,
		Clock: p.Clock(), Random: p.Random(), Log: slog.New(slog.NewTextHandler(&w.text, nil)),
	})
	ln, err := p.Listen(netip.AddrPort{}, "", sock.PortRange{})
	if err == nil {
		err = w.a.Serve(ln)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.to = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), ln.Addr().Port())
	t.Cleanup(func() {
		if err := w.a.Close(); err != nil {
			t.Error(err)
		}
		if n := w.a.Pending(); n != 0 {
			t.Errorf("%d connections are pending after Close", n)
		}
	})
	return w
}

// dial connects from 127.0.0.last and sends bytes.
func (w *world) dial(last byte, said string) sock.Conn {
	w.Helper()
	c, err := w.Process("host").Dial(w.Context(), sock.From{Addr: netip.AddrFrom4([4]byte{127, 0, 0, last})}, w.to)
	if err == nil {
		_, err = c.Write([]byte(said))
	}
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = c.Close() })
	return c
}

// rest returns what the peer sends until it closes the connection.
func (w *world) rest(c sock.Conn) string {
	w.Helper()
	_ = c.SetReadDeadline(time.Now().Add(hang))
	b, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.Errorf("the connection stays open; %q was received", b)
	}
	return string(b)
}

// text is the text of a log.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (t *text) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(b)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// hello reads a first message of four bytes.
func hello(c *Conn) error {
	if _, err := io.ReadFull(c.Conn, make([]byte, 4)); err != nil {
		return err
	}
	return c.HelloRead()
}

// A connection whose handshake fails is closed after the rejection, and counted by the reason.
func TestHandshakeFails(t *testing.T) {
	tests := []struct {
		name    string
		said    string
		end     bool // the peer sends no more
		then    func() error
		rest    string
		refused map[string]uint64
		log     string
	}{
		{"refused", "abcd", false, func() error { return &Refusal{"wrong", []byte("no"), errors.New("that is no name")} }, "no",
			map[string]uint64{"wrong": 1}, `reason=wrong error="that is no name"`},
		{"refused, wrapped", "abcd", false, func() error { return fmt.Errorf("then: %w", &Refusal{Reason: "wrong"}) }, "",
			map[string]uint64{"wrong": 1}, "reason=wrong\n"},
		{"rejected and not counted", "abcd", false, func() error { return &Refusal{"", []byte("no"), errors.New("it is over")} }, "no", nil, ""},
		{"another error", "abcd", false, func() error { return io.ErrClosedPipe }, "", nil, ""},
		{"half a message", "ab", true, nil, "", map[string]uint64{Truncated: 1}, Truncated},
		{"nothing", "", true, nil, "", nil, ""},
		{"silence", "ab", false, nil, "", map[string]uint64{TimedOut: 1}, TimedOut},
		{"a panic", "abcd", false, func() error { panic("slipped") }, "", nil, "slipped"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				w := newWorld(t, func(c *Conn) error {
					if err := hello(c); err != nil {
						return err
					}
					return tt.then()
				})
				c := w.dial(1, tt.said)
				if tt.end {
					_ = c.CloseWrite()
				}
				if got := w.rest(c); got != tt.rest {
					t.Errorf("%q was received, want %q", got, tt.rest)
				}
				t.Until("the end of the handshake", func() bool { return w.a.Pending() == 0 })
				if diff := cmp.Diff(tt.refused, w.a.Counts(), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("refused (-want +got):\n%s", diff)
				}
				if log := w.text.String(); !strings.Contains(log, tt.log) || tt.log == "" && log != "" {
					t.Errorf("log %q, want %q", log, tt.log)
				}
			})
		})
	}
}

// At a limit a silent connection is closed for a new one, and counted by the limit. Mark and Since tell about it.
func TestEvictionsAreCounted(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		w := newWorld(t, hello)
		before := w.a.Mark()
		for i, from := range []byte{1, 1, 1} {
			w.dial(from, "")
			t.Until("the connection", func() bool { return w.a.Pending() == min(i+1, 2) })
		}
		t.Until("the eviction of one address", func() bool { return w.a.Counts()[TooManyFromSource] == 1 })
		if err := w.a.Since(before); err == nil || err.Error() != "the port has too many connections: 1 unauthenticated ones were closed meanwhile; the log names the first" {
			t.Errorf("since: %v", err)
		}
		for _, from := range []byte{2, 3} {
			w.dial(from, "")
		}
		t.Until("the eviction of any address", func() bool { return w.a.Counts()[TooMany] == 1 })
		if err := w.a.Since(w.a.Mark()); err != nil {
			t.Errorf("since now: %v", err)
		}
	})
}

// A connection with an owner does not count against the limits, and Close leaves it open.
func TestOwned(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		owned := make(chan sock.Conn, 8)
		w := newWorld(t, func(c *Conn) error {
			if err := hello(c); err != nil {
				return err
			}
			c.Authenticated()
			_ = c.Conn.SetDeadline(time.Time{})
			owned <- c.Conn
			return nil
		})
		var all, ends []sock.Conn
		for range 6 { // more than the limits
			all = append(all, w.dial(1, "abcd"))
			ends = append(ends, <-owned)
		}
		if err := w.a.Close(); err != nil {
			t.Error(err)
		}
		for _, c := range ends {
			if _, err := c.Write([]byte("x")); err != nil {
				t.Error(err)
			}
			_ = c.Close()
		}
		for _, c := range all {
			if got := w.rest(c); got != "x" {
				t.Errorf("%q was received, want %q", got, "x")
			}
		}
	})
}

// scripted is a listener whose Accept returns the errors one after the other.
type scripted struct {
	errs   chan error
	closed chan struct{}
}

func (s *scripted) Addr() netip.AddrPort { return netip.AddrPort{} }

func (s *scripted) Accept() (sock.Conn, error) {
	select {
	case err := <-s.errs:
		return nil, err
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *scripted) Close() error { close(s.closed); return nil }

// An accept that fails is tried again after a pause, and logged without an address. After Close, Serve closes the listener.
func TestAcceptFails(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		w := newWorld(t, hello)
		ln := &scripted{make(chan error), make(chan struct{})}
		before := w.a.Mark()
		if err := w.a.Serve(ln); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for range 3 {
			ln.errs <- os.NewSyscallError("accept4", unix.EMFILE)
		}
		if d := time.Since(start); d < 2*retryPause {
			t.Errorf("three accepts within %v", d)
		}
		t.Until("the refusals", func() bool { return w.a.Counts()[AcceptFailed] == 3 })
		if err := w.a.Since(before); !errors.Is(err, unix.EMFILE) || !strings.Contains(err.Error(), "(ulimit -n)") {
			t.Errorf("since: %v", err)
		}
		if log := w.text.String(); strings.Count(log, "\n") != 1 || strings.Contains(log, "from=") || !strings.Contains(log, "(ulimit -n)") {
			t.Errorf("log %q, want one line without an address", log)
		}
		if err := w.a.Close(); err != nil {
			t.Error(err)
		}
		<-ln.closed
		late := &scripted{make(chan error), make(chan struct{})}
		if err := w.a.Serve(late); err != net.ErrClosed {
			t.Errorf("serve after close: %v", err)
		}
		<-late.closed
	})
}
