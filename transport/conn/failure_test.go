package conn_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
)

// When a process dies, processes without a connection to it learn of it too: a process that closes a
// connection afterwards sends the first failure, and its peers pass it on. Once a new connection has been set
// up, the old failure is not sent any more.
func TestFirstFailureIsPassedOn(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		node := func(name string) *transport.Transport {
			return transporttest.NewTCP(t, 1, func(o *transport.Options) { o.HostID = name })
		}
		na, nb, nc, nd := node("na"), node("nb"), node("nc"), node("nd")
		toC, fromC := transporttest.Connect(t, nd, nc)
		toD, fromA := transporttest.Connect(t, na, nd)
		toA, fromB := transporttest.Connect(t, nb, na)
		ended := func(b *conn.Conn) error {
			transporttest.Await(t, "the end of "+b.String(), func() bool { return b.Ended() != nil })
			return b.Ended()
		}
		toC.PeerGone(fmt.Errorf("%w: %v: its process is gone", fault.ErrPeerGone, &toC.Conn)) // as when the session has died
		closing := func(c interface{ Close() error }) {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		check := func(b *conn.Conn, kind error, what string) {
			t.Helper()
			err := ended(b)
			if !errors.Is(err, kind) || !strings.Contains(err.Error(), what+", after another connection had failed: peer gone: nd -> nc conn ") || !strings.HasSuffix(err.Error(), "its process is gone") {
				t.Errorf("%v, want an error that names nc", err)
			}
		}
		closing(toC)
		closing(fromC)
		closing(fromA)
		check(&toD.Conn, fault.ErrPeerClosed, ": nd closed the connection")
		closing(toD)
		m, _ := transporttest.Memory(t, 8)
		transporttest.Irecv(t, fromB, conn.Buffer{Addr: m.Addr(), Size: 8, Region: transporttest.Register(t, fromB, m)})
		closing(fromB)
		check(&toA.Conn, fault.ErrPeerRefused, "closed with 1 requests outstanding")
		closing(toA)

		var s *conn.Sender
		var r *conn.Receiver
		for range 2 { // both processes have a first failure before the first round, and none after it
			s, r = transporttest.Connect(t, na, nd)
			closing(r)
			if err := ended(&s.Conn); strings.Contains(err.Error(), "nc") || !errors.Is(err, fault.ErrPeerClosed) {
				t.Errorf("after a new connection: %v", err)
			}
			closing(s)
		}
	})
}

// That a peer closes a connection is a failure only if the program goes on using the connection.
func TestPeerClosedIsAFailureOnlyInUse(t *testing.T) {
	for _, used := range []bool{true, false} {
		t.Run(fmt.Sprintf("used %v", used), transporttest.Simulated(func(t *testing.T) {
			node := func(name string) *transport.Transport {
				return transporttest.NewTCP(t, 1, func(o *transport.Options) { o.HostID = name })
			}
			na, nb, nc := node("na"), node("nb"), node("nc")
			toB, fromA := transporttest.Connect(t, na, nb)
			toA, fromC := transporttest.Connect(t, nc, na)
			if err := fromA.Close(); err != nil {
				t.Fatal(err)
			}
			transporttest.Await(t, "the end of "+toB.String(), func() bool { return toB.Ended() != nil })
			if used {
				if _, err := toB.Isend(0, 0, 1, nil); !errors.Is(err, fault.ErrPeerClosed) {
					t.Errorf("isend after the peer's end: %v", err)
				}
			}
			if err := errors.Join(fromC.Close(), toB.Close()); err != nil {
				t.Error(err)
			}
			transporttest.Await(t, "the end of "+toA.String(), func() bool { return toA.Ended() != nil })
			if err := toA.Ended(); strings.Contains(err.Error(), ", after another connection had failed: closed by the peer: na -> nb conn ") != used {
				t.Errorf("used %v: %v", used, err)
			}
			if err := toA.Close(); err != nil {
				t.Error(err)
			}
		}))
	}
}
