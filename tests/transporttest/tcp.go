package transporttest

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"ncclmesh/tests/require"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/tcp"
)

// NewTCP makes a transport over the interfaces that there are, which ends with the
// test. In a simulation each is on another machine than the one before; otherwise it needs no RDMA, real or fake.
func NewTCP(t *testing.T, streams int, change ...func(*transport.Options)) *transport.Transport {
	t.Helper()
	if worldOf(t) != nil {
		return New(t, slices.Concat([]func(*transport.Options){func(o *transport.Options) {
			o.Transport, o.TCPStreams, o.TCPCheck = transport.TransportTCP, streams, tcp.CheckOff
		}}, change)...)
	}
	return open(t, transport.Options{
		Transport: transport.TransportTCP, TCPStreams: streams, TCPCheck: tcp.CheckOff,
		TimeScale: 5, Log: slog.New(slog.NewTextHandler(logWriter{t}, nil)),
	}, change)
}

// PairTCP connects two new transports.
func PairTCP(t *testing.T, streams int, change ...func(*transport.Options)) (*conn.Sender, *conn.Receiver) {
	t.Helper()
	s, r := Connect(t, NewTCP(t, streams, change...), NewTCP(t, streams, change...))
	if n := len(s.Lanes()); n < streams || n%streams != 0 {
		t.Fatalf("%d lanes; want %d streams on every path", n, streams)
	}
	return s, r
}

// Checked has every lane checked.
func Checked(o *transport.Options) { o.TCPCheck = tcp.CheckOn }

// OverTCP runs a test with one and with four streams on a path, and with two that
// are checked.
func OverTCP(t *testing.T, f func(t *testing.T, s *conn.Sender, r *conn.Receiver)) {
	for _, tt := range []struct {
		name    string
		streams int
		change  []func(*transport.Options)
	}{{"1 stream", 1, nil}, {"4 streams", 4, nil}, {"2 streams, checked", 2, []func(*transport.Options){Checked}}} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.streams == 4 {
				require.Full(t, "the same test with one stream, and with two that are checked")
			}
			run(t, func(t *testing.T) {
				s, r := PairTCP(t, tt.streams, tt.change...)
				for _, l := range slices.Concat(s.Lanes(), r.Lanes()) {
					if l.Port.Kind() != lane.TCP || strings.HasSuffix(l.Carrier.Terms(), " checked") != (tt.change != nil) {
						t.Fatalf("%v: %s", l, l.Carrier.Terms())
					}
				}
				f(t, s, r)
			})
		})
	}
}

// Both tests a send and its receive by turns until both are done, and returns their
// sizes: over TCP neither gets there without the other.
func Both(t *testing.T, what string, reqs ...*conn.Request) []conn.Sizes {
	t.Helper()
	sizes, done := make([]conn.Sizes, len(reqs)), make([]bool, len(reqs))
	left := len(reqs)
	Await(t, what, func() bool {
		for i, q := range reqs {
			if done[i] {
				continue
			}
			var err error
			if done[i], err = q.Test(&sizes[i]); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if done[i] {
				left--
			}
		}
		return left == 0
	})
	return sizes
}
