package sockets

import (
	"errors"
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/sock"
)

// informed waits until the network says something of a stream.
func informed(w *world, c interface{ Info() (sock.Info, error) }, what string, so func(sock.Info) bool) {
	w.Helper()
	w.await(what, func() bool {
		i, err := c.Info()
		w.must(err)
		return so(i)
	})
}

// unreached are the errors of a stream whose other end does not answer.
func unreached(w *world, what string, err error) {
	w.Helper()
	if !errors.Is(err, unix.ETIMEDOUT) && !errors.Is(err, unix.EHOSTUNREACH) {
		w.Errorf("%s: %v", what, err)
	}
}

// overfill begins to write more than the buffers of a stream hold; what it returns waits until all is written.
func (w *world) overfill(c conn) (over func()) {
	all := pattern(much)
	over = meanwhile(func() {
		_, err := c.Write(all)
		w.is("write", err, nil)
	})
	informed(w, c, "a full buffer", func(i sock.Info) bool { return i.Waiting })
	return over
}

// silenceRows are about an other end that does not answer, and about what the network says of it.
var silenceRows = []row{
	on("nothing waits where everything is acknowledged", func(w *world, a, b conn) {
		w.wrote(a, "hello")
		informed(w, a, "the acknowledgement", func(i sock.Info) bool { return !i.Waiting && i.Lost == 0 })
		w.reads(b, "hello")
	}),
	on("a slow reader acknowledges", func(w *world, a, b conn) {
		l := laneOf(w, a)
		n := l.fill()
		informed(w, l, "waiting", func(i sock.Info) bool { return i.Waiting && i.Lost == 0 })
		if _, err := io.ReadFull(b, make([]byte, n)); err != nil {
			w.Error(err)
		}
		informed(w, l, "the end of waiting", func(i sock.Info) bool { return !i.Waiting })
		l.close()
	}),
	on("what is lost is sent again, and counted", func(w *world, a, b conn) {
		w.hosts[0].lose(true)
		w.wrote(a, "hello")
		informed(w, a, "two losses", func(i sock.Info) bool {
			return i.Waiting && i.Unheard(2) && i.LastAck >= 100*time.Millisecond
		})
		w.hosts[0].lose(false)
		informed(w, a, "the acknowledgement", func(i sock.Info) bool { return !i.Waiting && i.Lost == 0 })
		w.reads(b, "hello")
	}),
	on("acknowledgements that are lost", func(w *world, a, b conn) {
		w.hosts[1].lose(true)
		w.wrote(a, "hello")
		w.reads(b, "hello")
		informed(w, a, "two losses", func(i sock.Info) bool { return i.Waiting && i.Unheard(2) })
		w.hosts[1].lose(false)
		informed(w, a, "the acknowledgement", func(i sock.Info) bool { return !i.Waiting && i.Lost == 0 })
		w.wrote(a, "once more")
		w.reads(b, "once more")
	}),
	on("bytes that are not acknowledged for longer than the patience", func(w *world, a, b conn) {
		w.must(a.SetPatience(sock.Patience{Idle: time.Hour, Interval: time.Hour, Count: 9, Silence: 300 * time.Millisecond}))
		w.hosts[0].lose(true)
		w.wrote(a, "hello")
		_, err := a.Read(make([]byte, 1))
		unreached(w, "read", err)
		w.ends(a, io.EOF)
		_, err = a.Write([]byte("x"))
		w.is("write", err, unix.EPIPE)
		w.hosts[0].lose(false)
	}),
	on("a lane whose bytes are not acknowledged for longer than the patience", func(w *world, a, b conn) {
		w.must(a.SetPatience(sock.Patience{Idle: time.Hour, Interval: time.Hour, Count: 9, Silence: 300 * time.Millisecond}))
		l := laneOf(w, a)
		w.hosts[0].lose(true)
		l.sends(0, 10)
		w.await("the end", func() bool {
			n, errno := l.Receive(l.addr, 10)
			if errno != unix.EAGAIN {
				unreached(w, "receive", errno)
			}
			return errno != unix.EAGAIN || n >= 0
		})
		w.hosts[0].lose(false)
		l.close()
	}),
	on("an idle end that does not answer", func(w *world, a, b conn) {
		w.must(a.SetPatience(sock.Patience{Idle: time.Second, Interval: time.Second, Count: 1}))
		w.hosts[1].lose(true)
		_, err := a.Read(make([]byte, 1))
		unreached(w, "read", err)
		w.hosts[1].lose(false)
	}),
	on("an idle end that answers stays", func(w *world, a, b conn) {
		w.must(a.SetPatience(sock.Patience{Idle: time.Second, Interval: time.Second, Count: 1, Silence: time.Second}))
		informed(w, a, "a while without a sign", func(i sock.Info) bool { return i.LastAck > 900*time.Millisecond })
		informed(w, a, "an answer", func(i sock.Info) bool { return i.LastAck < 500*time.Millisecond })
		w.wrote(b, "hello")
		w.reads(a, "hello")
	}),
	on("a reader that does not read exhausts the patience for bytes", func(w *world, a, b conn) {
		w.must(a.SetPatience(sock.Patience{Idle: time.Hour, Interval: time.Hour, Count: 9, Silence: 500 * time.Millisecond}))
		_, err := a.Write(pattern(much))
		unreached(w, "write", err)
	}),
	on("a reader that does not read does not exhaust the patience with an idle end", func(w *world, a, b conn) {
		w.must(a.SetPatience(sock.Patience{Idle: time.Second, Interval: time.Second, Count: 1}))
		over := w.overfill(a)
		informed(w, a, "a while without a sign", func(i sock.Info) bool { return i.LastAck > 100*time.Millisecond })
		informed(w, a, "an answer to a question for room", func(i sock.Info) bool { return i.LastAck < 100*time.Millisecond && i.Lost == 0 })
		if _, err := io.ReadFull(b, make([]byte, much)); err != nil {
			w.Error(err)
		}
		over()
	}),
	on("a question for room that is not answered", func(w *world, a, b conn) {
		over := w.overfill(a)
		w.hosts[1].lose(true)
		informed(w, a, "two losses", func(i sock.Info) bool { return i.Waiting && i.Unheard(2) })
		w.hosts[1].lose(false)
		informed(w, a, "an answer", func(i sock.Info) bool { return i.Waiting && i.Lost == 0 })
		if _, err := io.ReadFull(b, make([]byte, much)); err != nil {
			w.Error(err)
		}
		over()
	}),
	on("the other end's interface is down for a while", func(w *world, a, b conn) {
		w.hosts[1].up(false)
		w.wrote(a, "hello")
		informed(w, a, "two losses", func(i sock.Info) bool { return i.Waiting && i.Unheard(2) })
		w.hosts[1].up(true)
		w.reads(b, "hello")
		informed(w, a, "the acknowledgement", func(i sock.Info) bool { return !i.Waiting && i.Lost == 0 })
	}),
	on("an end without a way counts losses, too", func(w *world, a, b conn) {
		w.hosts[0].up(false)
		w.wrote(a, "hello")
		informed(w, a, "two losses", func(i sock.Info) bool { return i.Waiting && i.Unheard(2) })
		w.hosts[0].up(true)
		w.reads(b, "hello")
		informed(w, a, "the acknowledgement", func(i sock.Info) bool { return !i.Waiting && i.Lost == 0 })
	}),
	on("an address that is gone for a while", func(w *world, a, b conn) {
		own := netip.PrefixFrom(w.hosts[0].four, 24)
		w.hosts[0].address(own, false)
		w.wrote(a, "hello")
		informed(w, a, "two losses", func(i sock.Info) bool { return i.Waiting && i.Unheard(2) })
		w.hosts[0].address(own, true)
		w.reads(b, "hello")
	}),
	{name: "a stream that is tied to its link", run: func(w *world) {
		for _, to := range []netip.Addr{w.hosts[1].four, w.hosts[1].six, w.hosts[1].local} {
			a, b := w.join(sock.From{Netdev: "eth0", OnLink: true}, to, "")
			w.must(b.Tie("eth0"))
			w.wrote(a, "hello")
			w.reads(b, "hello")
			w.wrote(b, "hello")
			w.reads(a, "hello")
			w.must(a.Close(), b.Close())
		}
	}},
	{name: "a stream that is tied hears nobody who does not say that he is on the link", run: func(w *world) {
		a, b := joined(w)
		w.must(b.Tie("eth0"))
		w.wrote(a, "hello")
		informed(w, a, "two losses", func(i sock.Info) bool { return i.Waiting && i.Unheard(2) })
		w.must(b.SetReadDeadline(time.Now()))
		if n, _ := b.Read(make([]byte, 10)); n != 0 {
			w.Errorf("%d bytes came", n)
		}
		w.must(a.Tie("eth0"), b.SetReadDeadline(time.Time{}))
		w.reads(b, "hello")
		w.must(a.Close(), b.Close())
	}},
	{name: "a stream that is tied to another interface is none for its link any more", run: func(w *world) {
		a, b := w.join(sock.From{OnLink: true}, w.hosts[1].four, "")
		w.is("tie to nothing", b.Tie("eth9"), unix.ENODEV)
		w.must(b.Tie("lo"))
		w.wrote(a, "hello")
		w.ends(a, unix.ECONNRESET)
		w.must(a.Close(), b.Close())
	}},
}
