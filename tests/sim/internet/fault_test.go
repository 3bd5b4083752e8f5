package internet_test

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ncclmesh/transport/sock"
)

// says sends text from one end, and wants it at the other.
func (w *world) says(from, to sock.Conn, text string) {
	w.Helper()
	if _, err := io.WriteString(from, text); err != nil {
		w.Fatal(err)
	}
	b := make([]byte, len(text))
	if n, err := io.ReadFull(to, b); err != nil || string(b) != text {
		w.Fatalf("read %q, %v, want %q", b[:n], err, text)
	}
}

// A black hole takes what one host sends another, over every link, and nothing else.
func TestBlackHole(t *testing.T) {
	try(t, 3, func(w *world) {
		a, b := w.pair(0, 1)
		c, d := w.pair(0, 2)
		w.net.BlackHole(w.hosts[0], w.hosts[1], true)
		w.says(c, d, "to another host")
		w.says(b, a, "back")
		w.must(err1(a.Write([]byte("into the hole"))), b.SetReadDeadline(time.Now().Add(5*time.Second)))
		if n, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes came out of the hole, %v", n, err)
		}
		if !w.hosts[0].Interface("eth0").Running() || w.net.Counts()["black hole for a segment"] == 0 {
			t.Errorf("counts %v", w.net.Counts())
		}
		w.net.BlackHole(w.hosts[0], w.hosts[1], false)
		got := make([]byte, 13)
		w.must(b.SetReadDeadline(time.Time{}), err1(io.ReadFull(b, got)))
		for _, c := range []sock.Conn{a, b, c, d} {
			w.must(c.Close())
		}
	})
}

// Streams that match are broken at both ends, others go on.
func TestReset(t *testing.T) {
	try(t, 3, func(w *world) {
		a, b := w.pair(0, 1)
		c, d := w.pair(0, 2)
		if n := w.net.Reset(func(from, to netip.AddrPort) bool { return to == a.Remote() && from == a.Local() }); n != 1 {
			t.Errorf("%d streams were reset", n)
		}
		for _, c := range []sock.Conn{a, b} {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("read: %v", err)
			}
		}
		w.says(c, d, "goes on")
		for _, c := range []sock.Conn{a, b, c, d} {
			w.must(c.Close())
		}
	})
}

// A call to a listener at which too many wait is not answered before one of them is accepted.
func TestAcceptQueue(t *testing.T) {
	try(t, 2, func(w *world) {
		l := w.listen(1)
		w.processes[1].LimitQueue(2)
		dial := func(wait time.Duration) (sock.Conn, error) {
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			defer cancel()
			return w.processes[0].Dial(ctx, sock.From{}, at(1, l))
		}
		for i := range 2 {
			c, err := dial(time.Second)
			w.must(err)
			w.clock.Sleep(time.Millisecond) // what has been answered waits once the answer is
			if i == 1 {
				w.must(c.Close())
			} else {
				defer c.Close()
			}
		}
		if _, err := dial(30 * time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a third: %v", err)
		}
		for range 2 {
			c, err := l.Accept()
			w.must(err, c.Close())
		}
		c, err := dial(time.Second)
		w.must(err)
		b, err := l.Accept()
		w.must(err)
		w.says(c, b, "in turn")
		w.must(c.Close(), b.Close(), l.Close())
	})
}

// A process without descriptors accepts nobody, and loses nobody.
func TestAcceptWithoutDescriptors(t *testing.T) {
	try(t, 2, func(w *world) {
		l := w.listen(1)
		a, err := w.processes[0].Dial(context.Background(), sock.From{}, at(1, l))
		w.must(err)
		w.processes[1].LimitDescriptors(4)
		if _, err := l.Accept(); !errors.Is(err, unix.EMFILE) {
			t.Errorf("accept: %v", err)
		}
		w.processes[1].LimitDescriptors(5)
		b, err := l.Accept()
		w.must(err)
		w.says(a, b, "still there")
		if _, err := b.Stream(); !errors.Is(err, unix.EMFILE) {
			t.Errorf("stream: %v", err)
		}
		if diff := cmp.Diff(map[string]int{"listener": 1, "stream": 1}, w.processes[1].Open()); diff != "" {
			t.Errorf("open (-want +got):\n%s", diff)
		}
		w.must(a.Close(), b.Close(), l.Close())
	})
}

// Watchers hear of addresses, of being up and of carriers, the hosts at both ends of a cable.
func TestWatch(t *testing.T) {
	try(t, 2, func(w *world) {
		heard := make([]int, 2)
		for i, h := range w.hosts {
			h.Watch(func() { heard[i]++ })
		}
		for i, step := range []struct {
			name   string
			change func()
			want   []int
			runs   []bool
		}{
			{"an address", func() { w.ports[0].SetPrefixes(netip.MustParsePrefix("10.0.0.9/24")) }, []int{1, 0}, []bool{true, true}},
			{"down", func() { w.ports[0].SetUp(false) }, []int{2, 1}, []bool{false, false}},
			{"up", func() { w.ports[0].SetUp(true) }, []int{3, 2}, []bool{true, true}},
			{"cut", func() { w.link.Cut(true) }, []int{4, 3}, []bool{false, false}},
			{"restored", func() { w.link.Cut(false) }, []int{5, 4}, []bool{true, true}},
			{"no power", func() { w.hosts[1].PowerOff() }, []int{6, 4}, []bool{false, false}},
			{"power", func() { w.hosts[1].PowerOn() }, []int{7, 5}, []bool{true, true}},
			{"unplugged", func() { w.link.Disconnect() }, []int{8, 6}, []bool{false, false}},
			{"plugged elsewhere", func() {
				w.net.Connect(fast, w.ports[0], w.hosts[1].AddInterface("eth9"))
			}, []int{9, 7}, []bool{true, false}},
		} {
			step.change()
			if diff := cmp.Diff(step.want, heard); diff != "" {
				t.Errorf("%d %s: changes that were heard of (-want +got):\n%s", i, step.name, diff)
			}
			if diff := cmp.Diff(step.runs, []bool{w.ports[0].Running(), w.ports[1].Running()}); diff != "" {
				t.Errorf("%d %s: running (-want +got):\n%s", i, step.name, diff)
			}
		}
	})
}

// The news of a process wake a thread that waits for anything at all.
func TestNews(t *testing.T) {
	try(t, 2, func(w *world) {
		news := make(chan struct{}, 1)
		w.processes[1].OnNews(func() {
			select {
			case news <- struct{}{}:
			default:
			}
		})
		none := func(what string) {
			w.Helper()
			w.clock.Sleep(time.Second)
			select {
			case <-news:
				t.Errorf("news after %s", what)
			default:
			}
		}
		l := w.listen(1)
		none("nothing")
		a, err := w.processes[0].Dial(context.Background(), sock.From{}, at(1, l))
		w.must(err)
		<-news
		b, err := l.Accept()
		w.must(err)
		none("a call")
		w.must(err1(a.Write([]byte("x"))))
		<-news
		none("a byte")
		w.must(a.Reset())
		<-news
		w.must(b.Close(), l.Close())
	})
}
