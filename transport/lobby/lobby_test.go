package lobby

import (
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const hang = 20 * time.Second

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

// Strangers come from 127.0.0.1 and its neighbours and are named by their place in
// the order of arrival.
func TestLobby(t *testing.T) {
	tests := []struct {
		name                     string
		script                   string // +n: one from 127.0.0.n enters; -i: stranger i leaves; x: the lobby is closed
		inside, refused, evicted []int
	}{
		{"within the limits", "+1 +1 +2", []int{0, 1, 2}, nil, nil},
		{"more than its share", "+1 +1 +1 +2", []int{0, 1, 3}, []int{2}, nil},
		{"a share is free again", "+1 +1 -0 +1", []int{1, 2}, nil, nil},
		{"the oldest goes", "+1 +2 +3 +4 +5", []int{2, 3, 4}, nil, []int{0, 1}},
		{"the oldest has left", "+1 +2 +3 -0 +4 +5", []int{2, 3, 4}, nil, []int{1}},
		{"the evicted hold no share", "+1 +1 +2 +3 +4 +1 +1", []int{4, 5, 6}, nil, []int{0, 1, 2, 3}},
		{"who left is not evicted", "+1 -0 -0 +2 x", nil, nil, []int{1}},
		{"closed", "+1 x +1 +1 +1", nil, nil, []int{0, 1, 2, 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := &Lobby{Max: 3, PerSource: 2}
			var all []*Stranger
			for step := range strings.FieldsSeq(tt.script) {
				n, _ := strconv.Atoi(step[1:])
				switch step[0] {
				case '+':
					c, _ := pair(t, byte(n))
					all = append(all, l.Enter(c))
				case '-':
					l.Leave(all[n])
				case 'x':
					l.Close()
				}
			}
			if got := l.Len(); got != len(tt.inside) {
				t.Errorf("%d are inside, want %d", got, len(tt.inside))
			}
			var inside, refused, evicted []int
			for i, s := range all {
				if s == nil {
					refused = append(refused, i)
					continue
				}
				if _, ok := l.inside[s]; ok {
					inside = append(inside, i)
				}
				if l.Leave(s) {
					evicted = append(evicted, i)
				}
			}
			if diff := cmp.Diff([][]int{tt.inside, tt.refused, tt.evicted}, [][]int{inside, refused, evicted}); diff != "" {
				t.Errorf("inside, refused, evicted (-want +got):\n%s", diff)
			}
			if l.Len() != 0 || len(l.sources) != 0 {
				t.Errorf("%d strangers and %d addresses are left", l.Len(), len(l.sources))
			}
		})
	}
}

// The connection of a stranger that has to go is closed, and no other's.
func TestEvictedIsClosed(t *testing.T) {
	l := &Lobby{Max: 1, PerSource: 1}
	in1, out1 := pair(t, 1)
	in2, out2 := pair(t, 2)
	if s := l.Enter(in1); s.Source.String() != out1.LocalAddr().String() {
		t.Errorf("comes from %v, want %v", s.Source, out1.LocalAddr())
	}
	s := l.Enter(in2)
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
