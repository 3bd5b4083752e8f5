package transporttest

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
)

// Await calls f until it is true. In a simulation time goes on between two calls, at first a little and then more. Otherwise there is no
// pause at first, as for what takes microseconds, and then a short one, so that others have the processor.
func Await(t testing.TB, what string, f func() bool) {
	t.Helper()
	const eager, pause = 1000, 20 * time.Microsecond
	w := worldOf(t)
	begun := time.Now()
	for calls := 0; !f(); calls++ {
		switch {
		case time.Since(begun) > 5*time.Minute:
			t.Fatalf("waited too long for %s", what)
		case w != nil:
			w.Sleep(pauseAfter(time.Since(begun)))
		case calls < eager:
			runtime.Gosched()
		default:
			time.Sleep(pause)
		}
	}
}

// pauseAfter is how long a simulated test that has waited for something pauses before it looks again: briefly enough that it looks
// in the middle of what messages do, and longer where it waits for what takes seconds.
func pauseAfter(waited time.Duration) time.Duration {
	const short, long = 100 * time.Microsecond, 200 * time.Millisecond
	if waited < long {
		return min(max(waited/32, time.Microsecond), short)
	}
	return min(waited/32, 50*time.Millisecond)
}

// Within fails the test when f does not return.
func Within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	Await(t, what, func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
}

// Listen makes a listener, and what its peer is told.
func Listen(t testing.TB, tr *transport.Transport) (*transport.Listener, handshake.Handle) {
	t.Helper()
	l, err := tr.Listen()
	if err != nil {
		t.Fatal(err)
	}
	raw := l.Handle()
	h, err := handshake.DecodeHandle(&raw)
	if err != nil {
		t.Fatal(err)
	}
	return l, h
}

// Connect sets up a connection between two transports.
func Connect(t testing.TB, from, to *transport.Transport) (*conn.Sender, *conn.Receiver) {
	t.Helper()
	l, h := Listen(t, to)
	return Join(t, from.Dial(h), l)
}

// Join waits for the connection that is dialled, and closes its listener.
func Join(t testing.TB, d *transport.Dialing, l *transport.Listener) (*conn.Sender, *conn.Receiver) {
	t.Helper()
	var s *conn.Sender
	var r *conn.Receiver
	Await(t, "the connection", func() bool {
		var err error
		if s == nil {
			if s, err = d.Poll(); err != nil {
				t.Fatal(err)
			}
		}
		if r == nil {
			if r, err = l.Accept(); err != nil {
				t.Fatal(err)
			}
		}
		return s != nil && r != nil
	})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return s, r
}

// Allocations is what f allocates each time. The count is the whole process's, and a busy
// machine puts into it what goes on in the background: only what is there each time is f's.
func Allocations(runs int, f func()) float64 {
	least := testing.AllocsPerRun(runs, f)
	for i := 0; i < 4 && least > 0; i++ {
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}

// Memory is user memory outside the Go heap.
func Memory(t *testing.T, n int) (*ibv.Memory, []byte) {
	t.Helper()
	m, err := ibv.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	free := func() {
		if err := m.Free(); err != nil {
			t.Error(err)
		}
	}
	if w := worldOf(t); w != nil { // adapters may use it until the transports have ended
		w.last = append(w.last, free)
	} else {
		t.Cleanup(free)
	}
	return m, m.Bytes()
}

// Register registers all of m.
func Register(t *testing.T, c interface {
	RegMR(kind lane.MemoryKind, addr, length uintptr) (*lane.Region, error)
}, m *ibv.Memory) *lane.Region {
	t.Helper()
	r, err := c.RegMR(lane.HostMemory, m.Addr(), uintptr(m.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Done tests a request until it is.
func Done(t *testing.T, what string, r *conn.Request) (sizes conn.Sizes) {
	t.Helper()
	Await(t, what, func() (ok bool) {
		var err error
		if ok, err = r.Test(&sizes); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return ok
	})
	return sizes
}

// Buffer is size bytes of m from off, where a message of that tag goes.
func Buffer(m *ibv.Memory, off, size int, tag int32, g *lane.Region) conn.Buffer {
	return conn.Buffer{Addr: m.Addr() + uintptr(off), Size: size, Tag: tag, Region: g}
}

// Isend sends when it can.
func Isend(t *testing.T, s *conn.Sender, m *ibv.Memory, off, size int, tag int32, g *lane.Region) *conn.Request {
	t.Helper()
	var q *conn.Request
	Await(t, "a grant", func() bool {
		var err error
		if q, err = s.Isend(m.Addr()+uintptr(off), size, tag, g); err != nil {
			t.Fatal(err)
		}
		return q != nil
	})
	return q
}

// Irecv grants buffers when it can.
func Irecv(t *testing.T, r *conn.Receiver, bufs ...conn.Buffer) *conn.Request {
	t.Helper()
	var q *conn.Request
	Await(t, "room for a receive", func() bool {
		var err error
		if q, err = r.Irecv(bufs); err != nil {
			t.Fatal(err)
		}
		return q != nil
	})
	return q
}

// Fill writes bytes that say where they belong.
func Fill(b []byte, seed int) {
	const period = 1 << 16
	for i := range min(len(b), period) {
		b[i] = byte(i*7 + i>>8*13 + seed)
	}
	for at := period; at < len(b); at += period {
		copy(b[at:], b[:period])
	}
}

// CloseBoth closes both halves of a connection.
func CloseBoth(t *testing.T, s *conn.Sender, r *conn.Receiver) {
	t.Helper()
	if err := errors.Join(s.Close(), r.Close()); err != nil {
		t.Error(err)
	}
}
