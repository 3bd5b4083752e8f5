package sockets

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/sock"
)

// pattern is n bytes that depend on their place.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + i>>16)
	}
	return b
}

// much is more than all buffers of a stream hold.
const much = 32 << 20

// streamRows are about what goes through a stream.
var streamRows = []row{
	on("bytes go both ways, and in order", func(w *world, a, b conn) {
		want := pattern(3 << 20)
		over := meanwhile(func() {
			_, err := a.Write(want)
			w.is("write", err, nil)
			w.is("close", a.CloseWrite(), nil)
		})
		over2 := meanwhile(func() {
			_, err := b.Write(want)
			w.is("write", err, nil)
			w.is("close", b.CloseWrite(), nil)
		})
		over3 := meanwhile(func() {
			got, err := io.ReadAll(a)
			if err != nil || !bytes.Equal(got, want) {
				w.Errorf("%d bytes came back, %v", len(got), err)
			}
		})
		got, err := io.ReadAll(b)
		if err != nil || !bytes.Equal(got, want) {
			w.Errorf("%d bytes came, %v", len(got), err)
		}
		over()
		over2()
		over3()
	}),
	on("Read gives what there is", func(w *world, a, b conn) {
		w.wrote(a, "hello")
		n, err := b.Read(make([]byte, 100))
		if n == 0 || err != nil {
			w.Errorf("read %d, %v", n, err)
		}
	}),
	on("reading and writing nothing", func(w *world, a, b conn) {
		if n, err := a.Write(nil); n != 0 || err != nil {
			w.Errorf("wrote %d, %v", n, err)
		}
		if n, err := b.Read(nil); n != 0 || err != nil {
			w.Errorf("read %d, %v", n, err)
		}
	}),
	on("CloseWrite ends one way, and the other goes on", func(w *world, a, b conn) {
		w.wrote(a, "the last")
		w.must(a.CloseWrite())
		w.must(a.CloseWrite())
		w.reads(b, "the last")
		w.ends(b, io.EOF)
		w.ends(b, io.EOF)
		w.wrote(b, "not yet")
		w.reads(a, "not yet")
		_, err := a.Write([]byte("more"))
		w.is("write", err, unix.EPIPE)
		w.must(b.Close())
		w.ends(a, io.EOF)
	}),
	on("Close sends what was written", func(w *world, a, b conn) {
		want := pattern(100_000)
		_, err := a.Write(want)
		w.must(err, a.Close())
		got, err := io.ReadAll(b)
		if err != nil || !bytes.Equal(got, want) {
			w.Errorf("%d bytes came, %v", len(got), err)
		}
	}),
	on("Write waits for a reader", func(w *world, a, b conn) {
		want := pattern(much)
		var wrote error
		over := meanwhile(func() { _, wrote = a.Write(want) })
		informed(w, a, "a full buffer", func(i sock.Info) bool { return i.Waiting })
		got := make([]byte, much)
		if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, want) {
			w.Error(err)
		}
		over()
		w.must(wrote)
	}),
	on("a deadline ends a Read that waits, and another lets it go on", func(w *world, a, b conn) {
		over := meanwhile(func() {
			_, err := a.Read(make([]byte, 1))
			w.is("read", err, os.ErrDeadlineExceeded)
		})
		w.pause()
		w.must(a.SetReadDeadline(time.Now().Add(time.Millisecond)))
		over()
		w.wrote(b, "hello")
		_, err := a.Read(make([]byte, 1)) // also where there is something
		w.is("read", err, os.ErrDeadlineExceeded)
		w.wrote(a, "writing goes on")
		w.must(a.SetReadDeadline(time.Time{}))
		w.reads(a, "hello")
		w.must(a.SetDeadline(time.Unix(1, 0)))
		_, err = a.Write([]byte("x"))
		w.is("write", err, os.ErrDeadlineExceeded)
		_, err = a.Read(make([]byte, 1))
		w.is("read", err, os.ErrDeadlineExceeded)
		w.must(a.SetDeadline(time.Time{}))
		w.wrote(a, "and goes on")
	}),
	on("a deadline ends a Write that waits", func(w *world, a, b conn) {
		all := pattern(much)
		w.must(a.SetDeadline(time.Now().Add(100 * time.Millisecond)))
		n, err := a.Write(all)
		w.is("write", err, os.ErrDeadlineExceeded)
		if n == 0 || n == much {
			w.Errorf("%d bytes were written", n)
		}
		w.must(a.SetDeadline(time.Time{}), a.CloseWrite())
		got, err := io.ReadAll(b)
		if err != nil || len(got) != n {
			w.Errorf("%d bytes came, %v; %d were written", len(got), err, n)
		}
	}),
	on("Close ends a Read and a Write that wait", func(w *world, a, b conn) {
		over := meanwhile(func() {
			_, err := a.Read(make([]byte, 1))
			w.is("read", err, net.ErrClosed)
		})
		over2 := meanwhile(func() {
			_, err := a.Write(pattern(much))
			w.is("write", err, net.ErrClosed)
		})
		informed(w, a, "a full buffer", func(i sock.Info) bool { return i.Waiting })
		w.must(a.Close())
		over()
		over2()
	}),
	on("calls of a connection that is closed", func(w *world, a, b conn) {
		w.must(a.Close())
		_, read := a.Read(make([]byte, 1))
		_, write := a.Write([]byte("x"))
		_, info := a.Info()
		_, stream := a.Stream()
		for what, err := range map[string]error{"read": read, "write": write, "deadline": a.SetDeadline(time.Now()), "read deadline": a.SetReadDeadline(time.Now()),
			"close write": a.CloseWrite(), "close": a.Close(), "reset": a.Reset(), "patience": a.SetPatience(sock.Patience{Idle: time.Second, Interval: time.Second, Count: 1}),
			"tie": a.Tie("eth0"), "info": info, "stream": stream} {
			w.is(what, err, net.ErrClosed)
		}
		w.ends(b, io.EOF)
	}),
	on("errors name both ends", func(w *world, a, b conn) {
		w.must(a.Close())
		_, err := a.Read(make([]byte, 1))
		var op *net.OpError
		if !errors.As(err, &op) || op.Source.String() != a.Local().String() || op.Addr.String() != a.Remote().String() || op.Op != "read" {
			w.Errorf("%#v", err)
		}
	}),
	on("Pump moves one stream into another", func(w *world, a, b conn) {
		c, d := joined(w)
		moved := 0
		over := meanwhile(func() {
			w.is("pump", b.Pump(c, func(n int) { moved += n }), nil)
			w.is("close", c.CloseWrite(), nil)
		})
		want := pattern(3 << 20)
		over2 := meanwhile(func() {
			_, err := a.Write(want)
			w.is("write", err, nil)
			w.is("close", a.CloseWrite(), nil)
		})
		got, err := io.ReadAll(d)
		if err != nil || !bytes.Equal(got, want) {
			w.Errorf("%d bytes came, %v", len(got), err)
		}
		over()
		over2()
		if moved != len(want) {
			w.Errorf("%d bytes are said to have moved", moved)
		}
		w.must(c.Close(), d.Close())
	}),
	on("Pump ends with the stream that breaks", func(w *world, a, b conn) {
		c, d := joined(w)
		broken := make(chan struct{})
		over := meanwhile(func() {
			defer close(broken)
			err := b.Pump(c, func(int) {})
			if !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
				w.Errorf("pump: %v", err)
			}
			if err != nil && !strings.Contains(err.Error(), c.Remote().String()) {
				w.Errorf("%v does not name %v", err, c.Remote())
			}
		})
		w.must(d.Reset())
		w.await("a break", func() bool {
			_, err := a.Write(pattern(10_000))
			select {
			case <-broken:
				return true
			default:
				w.must(err)
				return false
			}
		})
		over()
		w.must(c.Close())
	}),
	on("a deadline, and Close, end a Pump that waits", func(w *world, a, b conn) {
		c, d := joined(w)
		over := meanwhile(func() { w.is("pump", b.Pump(c, func(int) {}), os.ErrDeadlineExceeded) })
		w.pause()
		w.must(b.SetDeadline(time.Now()))
		over()
		w.must(b.SetDeadline(time.Time{}))
		over = meanwhile(func() { w.is("pump", b.Pump(c, func(int) {}), net.ErrClosed) })
		w.pause()
		w.must(b.Close())
		over()
		w.must(c.Close(), d.Close())
	}),
}

// endRows are about how streams end and break.
var endRows = []row{
	on("Close with bytes that were not read resets the stream", func(w *world, a, b conn) {
		w.wrote(a, "unread")
		informed(w, a, "the arrival", func(i sock.Info) bool { return !i.Waiting })
		w.must(b.Close())
		w.ends(a, unix.ECONNRESET)
		w.ends(a, io.EOF)
		_, err := a.Write([]byte("x"))
		w.is("write", err, unix.EPIPE)
	}),
	on("what came before a reset can be read", func(w *world, a, b conn) {
		w.wrote(b, "before")
		informed(w, b, "the arrival", func(i sock.Info) bool { return !i.Waiting })
		w.must(b.Reset())
		w.await("the reset", func() bool {
			_, err := a.Write([]byte("x"))
			return err != nil
		})
		w.reads(a, "before")
		w.ends(a, io.EOF) // Write has taken the error
	}),
	on("Reset ends the other end's Read", func(w *world, a, b conn) {
		over := meanwhile(func() { w.ends(a, unix.ECONNRESET) })
		w.pause()
		w.must(b.Reset())
		over()
		w.ends(a, io.EOF)
		w.is("close write", a.CloseWrite(), unix.ENOTCONN)
	}),
	on("Reset ends the other end's Write", func(w *world, a, b conn) {
		over := meanwhile(func() {
			_, err := a.Write(pattern(much))
			w.is("write", err, unix.ECONNRESET)
			_, err = a.Write([]byte("x"))
			w.is("write", err, unix.EPIPE)
		})
		informed(w, a, "a full buffer", func(i sock.Info) bool { return i.Waiting })
		w.must(b.Reset())
		over()
	}),
	on("writing to an end that was closed", func(w *world, a, b conn) {
		w.must(b.Close())
		w.await("a reset", func() bool {
			_, err := a.Write([]byte("x"))
			if err != nil {
				w.is("write", err, unix.EPIPE)
			}
			return err != nil
		})
		w.ends(a, io.EOF)
	}),
	on("writing to an end that has said so", func(w *world, a, b conn) {
		w.must(b.Close())
		w.ends(a, io.EOF)
		w.wrote(a, "nobody is there")
		w.await("a reset", func() bool {
			_, err := a.Write([]byte("x"))
			if err != nil {
				w.is("write", err, unix.EPIPE)
			}
			return err != nil
		})
	}),
	on("a reset of what was finished", func(w *world, a, b conn) {
		w.must(b.CloseWrite())
		w.ends(a, io.EOF)
		w.must(b.Reset())
		w.await("the reset", func() bool {
			_, err := a.Write([]byte("x"))
			if err != nil {
				w.is("write", err, unix.EPIPE)
			}
			return err != nil
		})
	}),
	on("both ends are closed at once", func(w *world, a, b conn) {
		w.must(a.CloseWrite(), b.CloseWrite())
		w.ends(a, io.EOF)
		w.ends(b, io.EOF)
		w.must(a.Close(), b.Close())
	}),
	on("a stream that has ended both ways", func(w *world, a, b conn) {
		w.must(a.CloseWrite())
		w.ends(b, io.EOF)
		w.must(b.CloseWrite())
		w.ends(a, io.EOF)
		for _, c := range []conn{a, b} {
			_, err := c.Write([]byte("x"))
			w.is("write", err, unix.EPIPE)
			w.ends(c, io.EOF)
		}
	}),
}
