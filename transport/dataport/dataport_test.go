package dataport

import (
	"context"
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

	"ncclmesh/handshake"
	"ncclmesh/tests/sim/hosts"
	"ncclmesh/transport/accept"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/limit"
	"ncclmesh/transport/sock"
)

const hang = 2 * time.Minute

var (
	lo4  = netip.MustParseAddr("127.0.0.1")
	name = handshake.LaneName{Session: handshake.SessionID{1, 2, 3}, Conn: 7, Lane: 3}
	key  = handshake.Key{9}.LaneKey()
)

func end(a netip.Addr) End {
	return End{Name: name, Key: key, Tokens: handshake.LaneTokens{Dialler: 11, Listener: 22}, Addr: a, Netdev: "lo"}
}

func newEndpoint(t *hosts.Test, change ...func(*Config)) *Endpoint {
	t.Helper()
	e, _ := newProcess(t, change...)
	return e
}

// newProcess makes an endpoint of a separate process; all are on one host.
func newProcess(t *hosts.Test, change ...func(*Config)) (*Endpoint, *hosts.Process) {
	t.Helper()
	p := t.Process("host")
	cfg := Config{KeepAlive: 10 * time.Second, Network: p, Clock: p.Clock(), Random: p.Random()}
	for _, f := range change {
		f(&cfg)
	}
	e := New(cfg)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e, p
}

func listen(t testing.TB, e *Endpoint, a netip.Addr) netip.AddrPort {
	t.Helper()
	port, err := e.Listen(a, "lo")
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(a, port)
}

// expect announces a lane and returns the channel that receives its stream.
func expect(t testing.TB, e *Endpoint, x End) (*Call, chan *sock.Stream) {
	t.Helper()
	got := make(chan *sock.Stream, 1)
	c, err := e.Expect(x, func(s *sock.Stream) { got <- s })
	if err != nil {
		t.Fatal(err)
	}
	return c, got
}

func wait[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(hang):
		t.Fatalf("waited too long for %s", what)
		panic("not reached")
	}
}

func dial(t testing.TB, e *Endpoint, x End, to netip.AddrPort) *sock.Stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	fd, err := e.Dial(ctx, x, to)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func closeAll(t testing.TB, streams ...*sock.Stream) {
	t.Helper()
	for _, s := range streams {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Many lanes connect at once, more than the limit of unauthenticated connections.
func TestManyLanes(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		e := newEndpoint(t)
		to := listen(t, e, lo4)
		const n = maxPerSource + 100
		var wg sync.WaitGroup
		fds := make(chan *sock.Stream, 2*n)
		for i := range n {
			x := end(lo4)
			x.Name.Conn = uint32(i)
			if _, err := e.Expect(x, func(s *sock.Stream) { fds <- s }); err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), hang)
				defer cancel()
				fd, err := e.Dial(ctx, x, to)
				if err != nil {
					t.Errorf("lane %d: %v", i, err)
					return
				}
				fds <- fd
			})
		}
		wg.Wait()
		if s := e.Stats(); s.Accepted != n || s.Dialled != n || s.Expected != 0 {
			t.Errorf("counters %+v, want %d lanes", s, n)
		}
		close(fds)
		for fd := range fds {
			closeAll(t, fd)
		}
	})
}

// intrude sends bytes to a data port and returns the connection.
func intrude(t *hosts.Test, to netip.AddrPort, said []byte) sock.Conn {
	t.Helper()
	return intrudeFrom(t, lo4, to, said)
}

func intrudeFrom(t *hosts.Test, from netip.Addr, to netip.AddrPort, said []byte) sock.Conn {
	t.Helper()
	c, err := t.Process("host").Dial(t.Context(), sock.From{Addr: from}, to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(said); err != nil {
		t.Fatal(err)
	}
	return c
}

func closedByPeer(t *hosts.Test, c sock.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(hang)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection stands: %d, %v", n, err)
	}
	_ = c.Close()
}

// Connections that do not authenticate are closed and counted, and the expected lane still connects.
func TestUnauthenticated(t *testing.T) {
	hello := func(change func(*End)) []byte {
		x := end(lo4)
		change(&x)
		h, err := handshake.LaneHello(x.Key, x.Name, x.Tokens)
		if err != nil {
			t.Fatal(err)
		}
		return h[:]
	}
	tests := []struct {
		name   string
		said   []byte
		half   bool // and no more
		reason string
	}{
		{"nothing", nil, true, ""},
		{"half a hello", hello(func(*End) {})[:20], true, accept.Truncated},
		{"random bytes", []byte("GET / HTTP/1.1\r\nHost: spark-a\r\nUser-Agent: something else\r\n\r\n"), false, reasonMalformed},
		{"an unknown session", hello(func(x *End) { x.Name.Session[0]++ }), false, reasonUnknown},
		{"an unknown connection", hello(func(x *End) { x.Name.Conn++ }), false, reasonUnknown},
		{"another lane", hello(func(x *End) { x.Name.Lane++ }), false, reasonUnknown},
		{"wrong key", hello(func(x *End) { x.Key[0]++ }), false, reasonMAC},
		{"wrong token", hello(func(x *End) { x.Tokens.Listener++ }), false, reasonMAC},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				e := newEndpoint(t)
				to := listen(t, e, lo4)
				_, got := expect(t, e, end(lo4))
				c := intrude(t, to, tt.said)
				if tt.half {
					_ = c.Close()
				} else {
					closedByPeer(t, c)
				}
				if tt.reason != "" {
					t.Until("the refusal to be counted", func() bool { return e.Stats().Refused[tt.reason] == 1 })
				}
				out := dial(t, e, end(lo4), to)
				closeAll(t, out, wait(t, "the lane", got))
			})
		})
	}
}

// A replayed hello of a lane is refused.
func TestReplay(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		e := newEndpoint(t)
		to := listen(t, e, lo4)
		h, err := handshake.LaneHello(key, name, end(lo4).Tokens)
		if err != nil {
			t.Fatal(err)
		}
		_, got := expect(t, e, end(lo4))
		c := intrude(t, to, h[:])
		if n, err := io.ReadFull(c, make([]byte, handshake.LaneWelcomeSize)); err != nil {
			t.Fatalf("the peer itself was refused after %d bytes: %v", n, err)
		}
		closeAll(t, wait(t, "the lane", got))
		_ = c.Close()

		closedByPeer(t, intrude(t, to, h[:])) // nobody expects it now
		x := end(lo4)
		x.Tokens.Listener++ // as a next lane of that name would have it
		_, got = expect(t, e, x)
		closedByPeer(t, intrude(t, to, h[:]))
		if s := e.Stats(); s.Refused[reasonUnknown] != 1 || s.Refused[reasonMAC] != 1 {
			t.Errorf("refused %v", s.Refused)
		}
		out := dial(t, e, x, to)
		closeAll(t, out, wait(t, "the lane", got))
	})
}

// Many silent connections do not keep a peer out.
func TestSilentCrowd(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		e := newEndpoint(t)
		to := listen(t, e, lo4)
		for i := range maxPending + 20 {
			c := intrudeFrom(t, netip.AddrFrom4([4]byte{127, 0, 0, byte(2 + i%4)}), to, nil)
			t.Cleanup(func() { _ = c.Close() })
		}
		_, got := expect(t, e, end(lo4))
		closeAll(t, dial(t, e, end(lo4), to), wait(t, "the lane", got))
		t.Until("one to be counted as too many", func() bool { return e.Stats().Refused[accept.TooMany] > 0 })
		if s := e.Stats(); s.Pending > maxPending {
			t.Errorf("%d pending", s.Pending)
		}
	})
}

// Silent connections are closed after a while.
func TestSilentConnection(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		e := newEndpoint(t)
		c := intrude(t, listen(t, e, lo4), nil)
		closedByPeer(t, c)
		t.Until("it to be counted", func() bool { return e.Stats().Refused[accept.TimedOut] == 1 })
		if s := e.Stats(); s.Pending != 0 {
			t.Errorf("%d pending", s.Pending)
		}
	})
}

// Silent connections from a peer's own address, more than an address may have, do not keep its lanes out until they
// time out.
func TestSharedAddress(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		e := newEndpoint(t)
		to := listen(t, e, lo4)
		for range maxPerSource + 4 {
			c := intrude(t, to, nil)
			t.Cleanup(func() { _ = c.Close() })
		}
		t.Until("the crowd", func() bool { return e.Stats().Refused[accept.TooManyFromSource] >= 4 })
		x := end(lo4)
		before, _ := expect(t, e, x)
		for range 20 {
			x.Name.Conn++
			_, got := expect(t, e, x)
			closeAll(t, dial(t, e, x, to), wait(t, "the lane", got))
		}
		if err := e.Why(before); err == nil || !strings.Contains(err.Error(), "the data port has too many connections") {
			t.Errorf("why a lane may not have come: %v", err)
		}
		if s := e.Stats(); s.Pending > maxPerSource || s.Refused[accept.TooMany]+s.Refused[accept.TimedOut] != 0 {
			t.Errorf("%d pending; refused %v", s.Pending, s.Refused)
		}
	})
}

// A dialler detects another program's port, and reports it.
func TestImpostor(t *testing.T) {
	tests := []struct {
		name   string
		answer func(sock.Conn)
		want   error
	}{
		{"a wrong proof", func(c sock.Conn) {
			var h [handshake.LaneHelloSize]byte
			if _, err := io.ReadFull(c, h[:]); err == nil {
				w := handshake.LaneWelcome(handshake.Key{1}, h, end(lo4).Tokens)
				_, _ = c.Write(w[:])
			}
		}, handshake.ErrLaneMAC},
		{"its own words", func(c sock.Conn) {
			var h [handshake.LaneHelloSize]byte
			if _, err := io.ReadFull(c, h[:]); err == nil {
				_, _ = c.Write(h[:handshake.LaneWelcomeSize])
			}
		}, nil},
		{"silence", func(c sock.Conn) { _, _ = io.Copy(io.Discard, c) }, context.DeadlineExceeded},
		{"the end", func(sock.Conn) {}, io.EOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				e := newEndpoint(t)
				ln, err := t.Process("host").Listen(netip.AddrPortFrom(lo4, 0), "", sock.PortRange{})
				if err != nil {
					t.Fatal(err)
				}
				most := hang
				if tt.want == context.DeadlineExceeded {
					most = time.Second
				}
				ctx, cancel := context.WithTimeout(t.Context(), most)
				defer cancel()
				var wg sync.WaitGroup
				wg.Go(func() {
					for n := 1; ; n++ {
						c, err := ln.Accept()
						if err != nil {
							return
						}
						if n == 2 {
							cancel() // the dialler has found out, and tries again
						}
						wg.Go(func() {
							tt.answer(c)
							if tt.want == io.EOF { // with what it has not read the end would be a reset
								_, _ = io.CopyN(io.Discard, c, handshake.LaneHelloSize)
							}
							_ = c.Close()
						})
					}
				})
				fd, err := e.Dial(ctx, end(lo4), ln.Addr())
				if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
					t.Errorf("stream %v, error %v; want %v", fd, err, tt.want)
				}
				_ = ln.Close()
				wg.Wait()
			})
		})
	}
}

// After Cancel and Close no connection is delivered.
func TestCancelAndClose(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		e := newEndpoint(t)
		to := listen(t, e, lo4)
		c, got := expect(t, e, end(lo4))
		if _, err := e.Expect(end(lo4), func(*sock.Stream) {}); err == nil {
			t.Error("a lane was expected twice")
		}
		e.Cancel(c)
		e.Cancel(c)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if fd, err := e.Dial(ctx, end(lo4), to); err == nil {
			t.Errorf("a lane nobody waits for came up as %v", fd)
		}
		silent := intrude(t, to, nil)
		t.Until("the silent connection", func() bool { return e.Stats().Pending > 0 })
		dialled := make(chan error, 1)
		go func() {
			_, err := e.Dial(context.Background(), end(lo4), to)
			dialled <- err
		}()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if err := wait(t, "the dial to end", dialled); err == nil {
			t.Error("a dial outlived its Endpoint")
		}
		closedByPeer(t, silent)
		if _, err := e.Listen(lo4, "lo"); !errors.Is(err, net.ErrClosed) {
			t.Errorf("listen after close: %v", err)
		}
		if _, err := e.Expect(end(lo4), func(*sock.Stream) {}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("expect after close: %v", err)
		}
		select {
		case fd := <-got:
			t.Errorf("stream %v for a lane that was withdrawn", fd)
		default:
		}
	})
}

func TestListenErrors(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		e := newEndpoint(t)
		for _, tt := range []struct{ addr, netdev string }{{"192.0.2.77", "lo"}, {"127.0.0.1", "nosuchif0"}} {
			if port, err := e.Listen(netip.MustParseAddr(tt.addr), tt.netdev); err == nil {
				t.Errorf("listening at %s on %s, port %d", tt.addr, tt.netdev, port)
			} else if want := fmt.Sprintf("%s on %s", tt.addr, tt.netdev); !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not name %q", err, want)
			}
		}
	})
}

// A silent peer is lost no later than KeepAlive promises, in whole seconds.
func TestKeepAlive(t *testing.T) {
	tests := []struct {
		silence time.Duration
		scale   float64
		want    [3]int // idle, interval, count
	}{
		{time.Second, 1, [3]int{1, 1, 1}},
		{2 * time.Second, 1, [3]int{1, 1, 1}},
		{4 * time.Second, 1, [3]int{2, 1, 2}},
		{10 * time.Second, 1, [3]int{5, 1, 3}},
		{10 * time.Second, 6, [3]int{30, 10, 3}},
	}
	for _, tt := range tests {
		e := New(Config{KeepAlive: tt.silence, Clock: clock.Clock{}.WithScale(tt.scale)})
		p := e.patience()
		if diff := cmp.Diff(tt.want, [3]int{int(p.Idle.Seconds()), int(p.Interval.Seconds()), p.Count}); diff != "" {
			t.Errorf("%v times %v (-want +got):\n%s", tt.silence, tt.scale, diff)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A lack of descriptors on this node is reported as its own on both sides, and is temporary.
func TestNoDescriptor(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		said := make(lines, 16)
		e, p := newProcess(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(said, nil)) })
		to := listen(t, e, lo4)
		call, got := expect(t, e, end(lo4))
		p.LimitDescriptors(0) // what is open stays
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, dialErr := e.Dial(ctx, end(lo4), to)
		c := intrude(t, to, nil)
		t.Until("the refusal", func() bool { return e.Why(call) != nil })
		lacked := e.Why(call)
		p.LimitDescriptors(1 << 20)
		for what, err := range map[string]error{"dial": dialErr, "expect": lacked} {
			if !limit.IsOwn(err) || !strings.Contains(err.Error(), "(ulimit -n)") {
				t.Errorf("%s: %v, want one that names this node's limit", what, err)
			}
		}
		_ = c.Close()
		if line := wait(t, "a line of the log", said); !strings.Contains(line, accept.AcceptFailed) || strings.Contains(line, "from=") {
			t.Errorf("the log says %q, want the reason and no address, which nobody knows", line)
		}
		closeAll(t, dial(t, e, end(lo4), to), wait(t, "the lane", got))
	})
}

// lines is the lines of a log.
type lines chan string

func (l lines) Write(b []byte) (int, error) { l <- string(b); return len(b), nil }
