package accept

import (
	"io"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const hang = 2 * time.Minute

// pair is a connection from 127.0.0.last: the listener's end, and the other.
func pair(t *testing.T, last byte) (in *net.TCPConn, out net.Conn) {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, last)}}
	if out, err = d.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if in, err = ln.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = out.Close() })
	return in, out
}

// source is the address of a connection.
func source(c net.Conn) netip.AddrPort { return c.RemoteAddr().(*net.TCPAddr).AddrPort() }

// Connections come from 127.0.0.1 and its neighbours. Which are evicted is random, so that the result is the number for
// each address, with the reason.
func TestLimiter(t *testing.T) {
	type evicted struct{ Source, All, Closed int }
	tests := []struct {
		name    string
		script  string       // +n: one from 127.0.0.n is added; -i, !i: connection i is removed, protected; x: the limiter is closed
		pending map[byte]int // by address
		refused []int
		evicted map[byte]evicted
	}{
		{"within the limits", "+1 +1 +2", map[byte]int{1: 2, 2: 1}, nil, nil},
		{"more than its share", "+1 +1 +1 +1 +2", map[byte]int{1: 2, 2: 1}, nil, map[byte]evicted{1: {Source: 2}}},
		{"a share is free again", "+1 +1 -0 +1", map[byte]int{1: 2}, nil, nil},
		{"a protected one stays", "+1 +1 !0 !1 +1", map[byte]int{1: 2}, []int{2}, nil},
		{"a protected one is removed", "+1 +1 !0 !1 -0 +1 +1", map[byte]int{1: 2}, nil, map[byte]evicted{1: {Source: 1}}},
		{"the address with the most loses one", "+1 +1 +2 +3", map[byte]int{1: 1, 2: 1, 3: 1}, nil, map[byte]evicted{1: {All: 1}}},
		{"but not a protected one", "+1 +1 +2 !0 !1 +3", map[byte]int{1: 2, 3: 1}, nil, map[byte]evicted{2: {All: 1}}},
		{"all are protected", "+1 +1 +2 !0 !1 !2 +3", map[byte]int{1: 2, 2: 1}, []int{3}, nil},
		{"a removed one is not evicted", "+1 -0 -0 +2 x", nil, nil, map[byte]evicted{2: {Closed: 1}}},
		{"closed", "+1 x +1 +1 +1", nil, nil, map[byte]evicted{1: {Closed: 4}}},
		{"protected and closed", "+1 !0 x", nil, nil, map[byte]evicted{1: {Closed: 1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := &Limiter{Max: 3, PerSource: 2}
			var all []*Pending
			for step := range strings.FieldsSeq(tt.script) {
				n, _ := strconv.Atoi(step[1:])
				switch step[0] {
				case '+':
					c, _ := pair(t, byte(n))
					all = append(all, l.Add(c, source(c)))
				case '-':
					l.Remove(all[n])
				case '!':
					if !l.Protect(all[n]) {
						t.Errorf("connection %d is not pending", n)
					}
				case 'x':
					l.Close()
				}
			}
			pending, gone := map[byte]int{}, map[byte]evicted{}
			var refused []int
			for i, s := range all {
				if s == nil {
					refused = append(refused, i)
					continue
				}
				from := s.source.Addr().As4()[3]
				if _, ok := l.pending[s]; ok {
					pending[from]++
				}
				g := gone[from]
				switch l.Remove(s) {
				case NotEvicted:
					continue
				case SourceFull:
					g.Source++
				case AllFull:
					g.All++
				case LimiterClosed:
					g.Closed++
				}
				if gone[from] = g; l.Protect(s) {
					t.Errorf("connection %d was protected after its eviction", i)
				}
			}
			if diff := cmp.Diff([]any{tt.pending, tt.refused, tt.evicted}, []any{pending, refused, gone}, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("pending, refused, evicted (-want +got):\n%s", diff)
			}
			if l.Len() != 0 || len(l.sources) != 0 {
				t.Errorf("%d connections and %d addresses are left", l.Len(), len(l.sources))
			}
		})
	}
}

// Evictions are unpredictable: of a full share, every connection is evicted now and then.
func TestEvictionIsRandom(t *testing.T) {
	const share = 4
	in, _ := pair(t, 1)
	evictions := map[int]int{}
	for range 200 {
		l := &Limiter{Max: 100, PerSource: share}
		var all []*Pending
		for range share {
			all = append(all, l.Add(in, source(in)))
		}
		l.Add(in, source(in))
		for i, s := range all {
			if l.Remove(s) == SourceFull {
				evictions[i]++
			}
		}
	}
	if len(evictions) != share {
		t.Errorf("evictions, by order of arrival: %v", evictions)
	}
}

// Only the evicted connection is closed.
func TestEvictedIsClosed(t *testing.T) {
	l := &Limiter{Max: 1, PerSource: 1}
	in1, out1 := pair(t, 1)
	in2, out2 := pair(t, 2)
	if s := l.Add(in1, source(in1)); s.source.String() != out1.LocalAddr().String() {
		t.Errorf("comes from %v, want %v", s.source, out1.LocalAddr())
	}
	l.Add(in2, source(in2))
	_ = out1.SetReadDeadline(time.Now().Add(hang))
	if _, err := out1.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the evicted one reads %v, want EOF", err)
	}
	if _, err := in2.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	_ = out2.SetReadDeadline(time.Now().Add(hang))
	if n, err := out2.Read(make([]byte, 1)); n != 1 {
		t.Errorf("the other reads %d, %v", n, err)
	}
}

// nothing is a connection without a socket.
type nothing struct{}

func (nothing) Close() error { return nil }

// With the same random numbers, the same connection is evicted every time.
func TestEvictionIsRepeatable(t *testing.T) {
	for _, drawn := range []byte{0, 0x80, 0xff} {
		var first []netip.AddrPort
		for run := range 20 {
			l := Limiter{Max: 12, PerSource: 4, Random: func(b []byte, _ string) {
				for i := range b {
					b[i] = drawn
				}
			}}
			var all []*Pending
			for i := range 40 {
				from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i % 7)}), uint16(i))
				all = append(all, l.Add(nothing{}, from))
			}
			var left []netip.AddrPort
			for _, s := range all {
				if l.Remove(s) == NotEvicted {
					left = append(left, s.source)
				}
			}
			if run == 0 {
				first = left
			}
			if diff := cmp.Diff(first, left, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" || len(left) != 12 {
				t.Fatalf("drawn %#x, run %d: %d stayed (-first +now):\n%s", drawn, run, len(left), diff)
			}
		}
	}
}

func TestMaxPending(t *testing.T) {
	tests := []struct {
		most int
		hard uint64
		want int
	}{
		{256, 1 << 20, 256},
		{256, math.MaxUint64, 256},
		{256, 4096, 256},
		{512, 4096, 511},
		{256, 1024, 127},
		{256, 64, 7},
		{256, 8, 1},
		{256, 1, 1},
	}
	for _, tt := range tests {
		if got := maxPending(tt.most, tt.hard); got != tt.want {
			t.Errorf("%d wanted of %d descriptors: %d, want %d", tt.most, tt.hard, got, tt.want)
		}
	}
}
