package lobby

import (
	"io"
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
func TestLobby(t *testing.T) {
	type went struct{ Share, Crowd, Ended int }
	tests := []struct {
		name    string
		script  string       // +n: one from 127.0.0.n enters; -i, !i: stranger i leaves, has been heard; x: the lobby is closed
		inside  map[byte]int // by address
		refused []int
		went    map[byte]went
	}{
		{"within the limits", "+1 +1 +2", map[byte]int{1: 2, 2: 1}, nil, nil},
		{"more than its share", "+1 +1 +1 +1 +2", map[byte]int{1: 2, 2: 1}, nil, map[byte]went{1: {Share: 2}}},
		{"a share is free again", "+1 +1 -0 +1", map[byte]int{1: 2}, nil, nil},
		{"who has been heard stays", "+1 +1 !0 !1 +1", map[byte]int{1: 2}, []int{2}, nil},
		{"who has been heard leaves", "+1 +1 !0 !1 -0 +1 +1", map[byte]int{1: 2}, nil, map[byte]went{1: {Share: 1}}},
		{"the crowd has to go", "+1 +1 +2 +3", map[byte]int{1: 1, 2: 1, 3: 1}, nil, map[byte]went{1: {Crowd: 1}}},
		{"but for those heard", "+1 +1 +2 !0 !1 +3", map[byte]int{1: 2, 3: 1}, nil, map[byte]went{2: {Crowd: 1}}},
		{"all are heard", "+1 +1 +2 !0 !1 !2 +3", map[byte]int{1: 2, 2: 1}, []int{3}, nil},
		{"who left is not turned out", "+1 -0 -0 +2 x", nil, nil, map[byte]went{2: {Ended: 1}}},
		{"closed", "+1 x +1 +1 +1", nil, nil, map[byte]went{1: {Ended: 4}}},
		{"heard and closed", "+1 !0 x", nil, nil, map[byte]went{1: {Ended: 1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := &Lobby[net.Conn]{Max: 3, PerSource: 2}
			var all []*Stranger[net.Conn]
			for step := range strings.FieldsSeq(tt.script) {
				n, _ := strconv.Atoi(step[1:])
				switch step[0] {
				case '+':
					c, _ := pair(t, byte(n))
					all = append(all, l.Enter(c, source(c)))
				case '-':
					l.Leave(all[n])
				case '!':
					if !l.Heard(all[n]) {
						t.Errorf("stranger %d is not inside", n)
					}
				case 'x':
					l.Close()
				}
			}
			inside, gone := map[byte]int{}, map[byte]went{}
			var refused []int
			for i, s := range all {
				if s == nil {
					refused = append(refused, i)
					continue
				}
				from := s.Source.Addr().As4()[3]
				if _, ok := l.pending[s]; ok {
					inside[from]++
				}
				g := gone[from]
				switch fate := l.Leave(s); fate {
				case Stayed:
					continue
				case OverShare:
					g.Share++
				case OverCrowd:
					g.Crowd++
				case LobbyEnded:
					g.Ended++
				}
				if gone[from] = g; l.Heard(s) {
					t.Errorf("stranger %d was heard after it went", i)
				}
			}
			if diff := cmp.Diff([]any{tt.inside, tt.refused, tt.went}, []any{inside, refused, gone}, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("inside, refused, went (-want +got):\n%s", diff)
			}
			if l.Len() != 0 || len(l.sources) != 0 {
				t.Errorf("%d strangers and %d addresses are left", l.Len(), len(l.sources))
			}
		})
	}
}

// Evictions are unpredictable: of a full share, every connection is evicted now and then.
func TestWhoGoesIsChance(t *testing.T) {
	const share = 4
	in, _ := pair(t, 1)
	went := map[int]int{}
	for range 200 {
		l := &Lobby[net.Conn]{Max: 100, PerSource: share}
		var all []*Stranger[net.Conn]
		for range share {
			all = append(all, l.Enter(in, source(in)))
		}
		l.Enter(in, source(in))
		for i, s := range all {
			if l.Leave(s) == OverShare {
				went[i]++
			}
		}
	}
	if len(went) != share {
		t.Errorf("who went, by order of arrival: %v", went)
	}
}

// Only the evicted connection is closed.
func TestEvictedIsClosed(t *testing.T) {
	l := &Lobby[net.Conn]{Max: 1, PerSource: 1}
	in1, out1 := pair(t, 1)
	in2, out2 := pair(t, 2)
	if s := l.Enter(in1, source(in1)); s.Source.String() != out1.LocalAddr().String() {
		t.Errorf("comes from %v, want %v", s.Source, out1.LocalAddr())
	}
	s := l.Enter(in2, source(in2))
	_ = out1.SetReadDeadline(time.Now().Add(hang))
	if _, err := out1.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the evicted one reads %v, want EOF", err)
	}
	if _, err := s.Conn.Write([]byte("x")); err != nil {
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
func TestChanceIsRepeated(t *testing.T) {
	for _, drawn := range []byte{0, 0x80, 0xff} {
		var first []netip.AddrPort
		for run := range 20 {
			l := Lobby[nothing]{Max: 12, PerSource: 4, Random: func(b []byte, _ string) {
				for i := range b {
					b[i] = drawn
				}
			}}
			var all []*Stranger[nothing]
			for i := range 40 {
				from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i % 7)}), uint16(i))
				all = append(all, l.Enter(nothing{}, from))
			}
			var left []netip.AddrPort
			for _, s := range all {
				if l.Leave(s) == Stayed {
					left = append(left, s.Source)
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
