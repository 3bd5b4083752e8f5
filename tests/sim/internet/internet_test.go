package internet_test

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/sim/internet"
	"ncclmesh/transport/sock"
)

// both sends a pattern each way at once.
func (w *world) both(a, b sock.Conn, n int) {
	var wg sync.WaitGroup
	for i, c := range []sock.Conn{a, b} {
		wg.Go(func() {
			if err := send(c, n, i); err != nil {
				w.Error(err)
			}
		})
		wg.Go(func() { w.wants(c, n, 1-i) })
	}
	wg.Wait()
}

func TestStream(t *testing.T) {
	for name, disturb := range map[string]func(w *world){
		"quiet": func(w *world) {},
		"loss": func(w *world) {
			w.ports[0].Lose(internet.Loss{Streams: 0.05})
			w.ports[1].Lose(internet.Loss{Streams: 0.05})
		},
		"slow":  func(w *world) { w.ports[0].Slow(1_000_000) },
		"delay": func(w *world) { w.ports[1].Delay(30 * time.Millisecond) },
		"no answer": func(w *world) {
			w.ports[0].Lose(internet.All)
			w.after(time.Second, func() { w.ports[0].Lose(internet.Loss{}) })
		},
		"cut": func(w *world) {
			w.after(time.Millisecond, func() { w.link.Cut(true) })
			w.after(3*time.Second, func() { w.link.Cut(false) })
		},
		"down": func(w *world) {
			w.after(time.Millisecond, func() { w.ports[1].SetUp(false) })
			w.after(3*time.Second, func() { w.ports[1].SetUp(true) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			try(t, 2, func(w *world) {
				a, b := w.pair(0, 1)
				disturb(w)
				w.both(a, b, 10_000_000)
				w.must(a.Close(), b.Close())
				w.Log(w.net.Counts(), w.bus.Now())
			})
		})
	}
}

// after does something later.
func (w *world) after(d time.Duration, do func()) { w.clock.After(d, "disturb", do) }

// A stream takes as long as its bytes at the link's rate.
func TestRate(t *testing.T) {
	try(t, 2, func(w *world) {
		a, b := w.pair(0, 1)
		begun := w.bus.Now()
		var wg sync.WaitGroup
		wg.Go(func() { w.must(send(a, 20_000_000, 1)) })
		w.wants(b, 20_000_000, 1)
		wg.Wait()
		if took := w.bus.Now() - begun; took < 20*time.Millisecond || took > 40*time.Millisecond {
			t.Errorf("20 MB at 1 GB/s took %v", took)
		}
		w.must(a.Close(), b.Close())
	})
}

// A process that is killed leaves ends and resets behind, a host without power nothing.
func TestKill(t *testing.T) {
	for _, tt := range []struct {
		name  string
		kill  func(w *world)
		wants error // of a read at the other end
	}{
		{"killed", func(w *world) { w.processes[1].Kill() }, io.EOF},
		{"killed with unread bytes", func(w *world) {
			w.must(err1(w.a.Write([]byte("unread"))))
			w.clock.Sleep(time.Millisecond)
			w.processes[1].Kill()
		}, unix.ECONNRESET},
		{"without power", func(w *world) { w.hosts[1].PowerOff() }, os.ErrDeadlineExceeded},
		{"without power for a while", func(w *world) {
			w.hosts[1].PowerOff()
			w.hosts[1].PowerOn()
			w.must(err1(w.a.Write([]byte("hello?"))))
		}, unix.ECONNRESET},
	} {
		t.Run(tt.name, func(t *testing.T) {
			try(t, 2, func(w *world) {
				a, b := w.pair(0, 1)
				w.a = a
				w.clock.Sleep(time.Second)
				tt.kill(w)
				w.must(a.SetReadDeadline(time.Now().Add(time.Minute)))
				if _, err := a.Read(make([]byte, 10)); !errors.Is(err, tt.wants) {
					t.Errorf("the other end reads %v, want %v", err, tt.wants)
				}
				if _, err := b.Read(make([]byte, 10)); !errors.Is(err, os.ErrClosed) && err == nil {
					t.Errorf("the killed process reads %v", err)
				}
				_ = a.Close()
			})
		})
	}
}

func err1[T any](_ T, err error) error { return err }

// Each system call can be refused, and nothing is left of the socket.
func TestRefusals(t *testing.T) {
	try(t, 2, func(w *world) {
		l := w.listen(1)
		p := w.processes[0]
		dial := func() error {
			c, err := p.Dial(context.Background(), sock.From{Addr: addr(0)}, at(1, l))
			if err == nil {
				_ = c.Close()
			}
			return err
		}
		for _, call := range []string{"socket", "bind", "connect"} {
			p.Refuse(call, unix.ENOMEM, 1, 2)
			for i, want := range []error{nil, unix.ENOMEM, unix.ENOMEM, nil} {
				if err := dial(); !errors.Is(err, want) {
					t.Errorf("%s %d: %v, want %v", call, i, err, want)
				}
			}
		}
		p.LimitDescriptors(3)
		if err := dial(); !errors.Is(err, unix.EMFILE) {
			t.Errorf("without descriptors: %v", err)
		}
		p.LimitDescriptors(4)
		w.must(dial())
		if _, err := p.Listen(netip.AddrPortFrom(addr(0), 0), "", sock.PortRange{}); err != nil {
			t.Error(err)
		}
		if _, err := p.Hear(sock.Interface{Name: "eth0", Index: 2}, netip.MustParseAddrPort("224.0.0.254:99")); !errors.Is(err, unix.EMFILE) {
			t.Errorf("a second socket: %v", err)
		}
		p.Kill()
		w.must(l.Close())
	})
}
