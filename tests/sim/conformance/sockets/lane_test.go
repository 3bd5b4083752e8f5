package sockets

import (
	"bytes"
	"io"

	"golang.org/x/sys/unix"

	"ncclmesh/ibv"
)

// lanes makes a row of what happens between a stream without waiting calls and a connection.
func lanes(name string, f func(w *world, l *lane, b conn)) row {
	return row{name: name, run: func(w *world) {
		a, b := joined(w)
		l := laneOf(w, a)
		f(w, l, b)
		l.close()
		_ = b.Close()
	}}
}

// fill sends until there is no room, and returns how much it sent.
func (l *lane) fill() (sent int) {
	l.w.Helper()
	for {
		n, errno := l.Send(l.addr, len(l.b))
		if errno == unix.EAGAIN {
			return sent
		}
		if errno != 0 || n <= 0 {
			l.w.Fatalf("sent %d, %v", n, errno)
		}
		sent += n
	}
}

// gives wants a call to return an error.
func gives(w *world, what string, n int, errno, want unix.Errno) {
	w.Helper()
	if errno != want || want != 0 && n != -1 {
		w.Errorf("%s: %d, %v, want %v", what, n, errno, want)
	}
}

// laneRows are about streams without waiting calls.
var laneRows = []row{
	lanes("a lane outlives its connection", func(w *world, l *lane, b conn) {
		copy(l.b, "hello")
		l.sends(0, 5)
		w.reads(b, "hello")
		w.wrote(b, "you too")
		l.receives(100, 7)
		if got := string(l.b[100:107]); got != "you too" {
			w.Errorf("received %q", got)
		}
	}),
	lanes("nothing to receive", func(w *world, l *lane, b conn) {
		n, errno := l.Receive(l.addr, 10)
		gives(w, "receive", n, errno, unix.EAGAIN)
		l.msg.Set(&l.iov[0], 1)
		l.iov[0].Base, l.iov[0].Length = l.addr, 10
		n, errno = l.ReceiveMessage(l.msg, 10)
		gives(w, "receive a message", n, errno, unix.EAGAIN)
	}),
	lanes("the end of the stream", func(w *world, l *lane, b conn) {
		w.wrote(b, "the last")
		w.must(b.CloseWrite())
		l.receives(0, 8)
		w.await("the end", func() bool {
			n, errno := l.Receive(l.addr, 10)
			l.passes(errno)
			return errno == 0 && n == 0
		})
	}),
	lanes("no room to send", func(w *world, l *lane, b conn) {
		copy(l.b, pattern(len(l.b)))
		n := l.fill()
		if l.Unsent() == 0 {
			w.Error("nothing is unsent")
		}
		l.msg.Set(&l.iov[0], 1)
		l.iov[0].Base, l.iov[0].Length = l.addr, 10
		k, errno := l.SendMessage(l.msg, 10)
		gives(w, "send a message", k, errno, unix.EAGAIN)
		if _, err := io.ReadFull(b, make([]byte, n)); err != nil {
			w.Error(err)
		}
		w.await("acknowledgements", func() bool { return l.Unsent() == 0 })
		l.sends(0, 10)
		w.reads(b, string(l.b[:10]))
	}),
	lanes("messages of several stretches", func(w *world, l *lane, b conn) {
		copy(l.b, "abcdefghijklmnopqrstuvwxyz")
		l.msg.Set(&l.iov[0], 3)
		for i, at := range []int{20, 3, 10} {
			l.iov[i].Base, l.iov[i].Length = l.addr+uintptr(at), uint64(i+2)
		}
		want := "uv" + "def" + "klmn"
		sent := 0
		for sent < len(want) {
			n, errno := l.SendMessage(l.msg, len(want))
			l.passes(errno)
			if sent += n; sent < len(want) { // the rest by itself
				l.sends(copyTo(l, want[sent:]), len(want)-sent)
				break
			}
		}
		w.reads(b, want)
		w.wrote(b, want)
		w.await("bytes", func() bool {
			i, err := b.Info()
			w.must(err)
			return !i.Waiting
		})
		n, errno := l.ReceiveMessage(l.msg, len(want))
		if errno != 0 || n != len(want) || string(l.b[20:22])+string(l.b[3:6])+string(l.b[10:14]) != want {
			w.Errorf("received %d, %v: %q", n, errno, l.b[:26])
		}
	}),
	lanes("everything comes, in order, however it is cut", func(w *world, l *lane, b conn) {
		want := pattern(len(l.b))
		copy(l.b, want)
		over := meanwhile(func() {
			got := make([]byte, len(want))
			if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, want) {
				w.Errorf("read: %v", err)
			}
			_, err := b.Write(got)
			w.is("write", err, nil)
		})
		l.sends(0, len(want))
		clear(l.b)
		l.receives(0, len(want))
		if !bytes.Equal(l.b, want) {
			w.Error("what came back differs")
		}
		over()
	}),
	lanes("the other end resets the stream", func(w *world, l *lane, b conn) {
		w.must(b.Reset())
		w.await("the reset", func() bool {
			n, errno := l.Receive(l.addr, 10)
			if errno != unix.EAGAIN {
				gives(w, "receive", n, errno, unix.ECONNRESET)
			}
			return errno != unix.EAGAIN
		})
		n, errno := l.Receive(l.addr, 10)
		gives(w, "receive again", n, errno, 0)
		n, errno = l.Send(l.addr, 10)
		gives(w, "send", n, errno, unix.EPIPE)
	}),
	lanes("the other end resets a stream with unsent bytes", func(w *world, l *lane, b conn) {
		l.fill()
		w.must(b.Reset())
		w.await("the reset", func() bool {
			n, errno := l.Send(l.addr, 10)
			if errno != unix.EAGAIN {
				gives(w, "send", n, errno, unix.ECONNRESET)
			}
			return errno != unix.EAGAIN
		})
		n, errno := l.Send(l.addr, 10)
		gives(w, "send again", n, errno, unix.EPIPE)
		if i, err := l.Info(); err != nil || !i.Waiting || l.Unsent() == 0 { // what was not acknowledged stays so
			w.Errorf("%+v, %v, %d bytes are unsent", i, err, l.Unsent())
		}
	}),
	lanes("Close sends what was taken", func(w *world, l *lane, b conn) {
		copy(l.b, "the last words")
		l.sends(0, 14)
		w.must(l.Close())
		w.reads(b, "the last words")
		w.ends(b, io.EOF)
	}),
	lanes("calls of a lane that is closed", func(w *world, l *lane, b conn) {
		if l.Number() <= 2 {
			w.Errorf("number %d", l.Number())
		}
		w.must(l.Close(), l.Close())
		n, errno := l.Send(l.addr, 10)
		gives(w, "send", n, errno, unix.EBADF)
		n, errno = l.Receive(l.addr, 10)
		gives(w, "receive", n, errno, unix.EBADF)
		_, err := l.Info()
		w.is("info", err, unix.EBADF)
		if l.Number() >= 0 || l.Unsent() != 0 {
			w.Errorf("number %d, %d bytes unsent", l.Number(), l.Unsent())
		}
	}),
	{name: "a lane whose connection is open", run: func(w *world) {
		a, b := joined(w)
		s, err := a.Stream()
		w.must(err)
		mem, err := ibv.Alloc(1 << 12)
		w.must(err)
		room := ibv.Carve[byte](mem, 5)
		copy(room, "hello")
		if n, errno := s.Send(ibv.AddrOf(&room[0]), 5); n < 1 || errno != 0 {
			w.Errorf("sent %d, %v", n, errno)
		}
		w.wrote(a, "!")
		w.must(s.Close(), a.Close())
		got, err := io.ReadAll(b)
		if err != nil || got[len(got)-1] != '!' {
			w.Errorf("%q, %v", got, err)
		}
		w.must(b.Close(), mem.Free())
	}},
}

// copyTo puts text where nothing else is, and returns the place.
func copyTo(l *lane, text string) int {
	copy(l.b[1000:], text)
	return 1000
}
