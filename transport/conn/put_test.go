package conn_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// Messages, puts and signals share the lanes of a connection. Short messages may go before their grants, and the receiver then defers
// the grants that signals need.
func TestPutsBesideMessages(t *testing.T) {
	transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		const (
			half         = 1 << 20
			rounds       = 40
			messages     = 1
			signals      = 2
			putEnded     = 100
			signalPosted = 1000
		)
		sm, out := transporttest.Memory(t, 2*half+64)
		rm, in := transporttest.Memory(t, 2*half+64)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		window, err := r.RegMR(lane.HostMemory, rm.Addr()+half, half)
		if err == nil {
			_, err = r.OpenWindow(5, window)
		}
		if err != nil {
			t.Fatal(err)
		}
		var w *conn.RemoteWindow
		transporttest.Await(t, "the window", func() bool { w, _ = s.Window(5); return w != nil })
		ended := map[uint64]int{}
		progress := func() {
			if _, err := s.ProgressPuts(func(owner uint64, err error) {
				if ended[owner]++; err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range rounds {
			n := []int{8, 1000, 100_000, half}[i%4]
			transporttest.Fill(out[:2*half], i)
			got := transporttest.Irecv(t, r, transporttest.Buffer(rm, 0, half, messages, rg))
			told := transporttest.Irecv(t, r, transporttest.Buffer(rm, 2*half, 64, signals, rg))
			sent := transporttest.Isend(t, s, sm, 0, n, messages, sg)
			begin := func(what string, f func() (bool, error)) {
				transporttest.Await(t, what, func() bool {
					ok, err := f()
					if err != nil {
						t.Fatal(err)
					}
					progress()
					return ok
				})
			}
			begin("a put", func() (bool, error) {
				return s.Put(&conn.Put{Window: w, Addr: sm.Addr() + half, Size: n, Region: sg, Owner: uint64(putEnded + i)})
			})
			begin("a signal", func() (bool, error) {
				if ok, _ := told.Test(nil); ok {
					t.Fatal("the signal has arrived before it was posted")
				}
				return s.Signal(sm.Addr()+2*half, 64, signals, sg, uint64(signalPosted+i))
			})
			transporttest.Await(t, "the signal", func() bool {
				progress() // sockets move nothing by themselves
				ok, err := told.Test(nil)
				if err != nil {
					t.Fatal(err)
				}
				return ok
			})
			if !bytes.Equal(in[half:half+n], out[half:half+n]) {
				t.Fatalf("round %d: the bytes of a put of %d are not there when its signal is", i, n)
			}
			transporttest.Both(t, "the message", sent, got)
			if !bytes.Equal(in[:n], out[:n]) {
				t.Fatalf("round %d: the bytes of a message of %d differ", i, n)
			}
			transporttest.Await(t, "the end of both", func() bool {
				progress()
				return ended[uint64(putEnded+i)] == 1 && ended[uint64(signalPosted+i)] == 1
			})
		}
		if len(ended) != 2*rounds {
			t.Errorf("%d puts and signals have ended, want %d", len(ended), 2*rounds)
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// Wrong windows and puts are usage errors, and the connection goes on.
func TestWindowMistakes(t *testing.T) {
	transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		sm, _ := transporttest.Memory(t, 4096)
		rm, _ := transporttest.Memory(t, 4096)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		usage := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, fault.ErrUsage) {
				t.Errorf("%s: %v, want a usage error", what, err)
			}
		}
		_, err := r.OpenWindow(0, rg)
		usage("window 0", err)
		_, err = r.OpenWindow(1, sg)
		usage("memory of another connection", err)
		own, err := r.OpenWindow(3, rg)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.OpenWindow(3, rg)
		usage("a number again", err)
		var w *conn.RemoteWindow
		transporttest.Await(t, "the window", func() bool { w, _ = s.Window(3); return w != nil })
		if _, known := s.Window(2); !known {
			t.Error("window 2 may still come")
		}
		for _, p := range []struct {
			what   string
			offset uint64
			addr   uintptr
			size   int
		}{{"no bytes", 0, sm.Addr(), 0}, {"beyond the window", 4095, sm.Addr(), 2}, {"beyond the source", 0, sm.Addr() + 1, 4096}, {"a huge offset", 1 << 63, sm.Addr(), 1}} {
			ok, err := s.Put(&conn.Put{Window: w, Offset: p.offset, Addr: p.addr, Size: p.size, Region: sg})
			if usage(p.what, err); ok {
				t.Errorf("%s: a put has begun", p.what)
			}
		}
		own.End()
		transporttest.Await(t, "the end of the window", own.Ended)
		if _, err := s.Put(&conn.Put{Window: w, Addr: sm.Addr(), Size: 8, Region: sg}); !errors.Is(err, conn.ErrWindowGone) {
			t.Errorf("a put into a window that has ended: %v", err)
		}
		if s.Ended() != nil || r.Ended() != nil {
			t.Errorf("the connection has ended: %v, %v", s.Ended(), r.Ended())
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// A brief signal carries the bytes of a put, and tells its number. Lanes that place parts do not take one.
func TestBriefSignals(t *testing.T) {
	transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		const (
			size  = 1 << 20
			tag   = 2
			bytes = 64
		)
		sm, out := transporttest.Memory(t, size)
		rm, in := transporttest.Memory(t, size+bytes)
		sg, rg := transporttest.Register(t, s, sm), transporttest.Register(t, r, rm)
		r.Standing()
		if _, err := r.OpenWindow(1, rg); err != nil {
			t.Fatal(err)
		}
		var w *conn.RemoteWindow
		transporttest.Await(t, "the window", func() bool { w, _ = s.Window(1); return w != nil })
		for i, n := range []int{0, 1, 8, 64, 65, 100_000, size} {
			transporttest.Fill(out, i)
			told := transporttest.Irecv(t, r, transporttest.Buffer(rm, size, bytes, tag, rg))
			put := &conn.Put{Window: w, Addr: sm.Addr(), Size: n, Region: sg, Owner: uint64(10 + i)}
			ends := map[uint64]int{uint64(100 + i): 1, uint64(10 + i): 1}
			if n == 0 {
				put = nil
				delete(ends, 10)
			}
			begun, ended := false, map[uint64]int{}
			poll := func() {
				if _, err := s.ProgressPuts(func(owner uint64, err error) {
					if ended[owner]++; err != nil {
						t.Error(err)
					}
				}); err != nil {
					t.Fatal(err)
				}
			}
			for end := time.Now().Add(time.Second); !begun && time.Now().Before(end); {
				var err error
				if begun, err = s.BriefSignal(uint8(200+i), tag, uint64(100+i), put); err != nil {
					t.Fatal(err)
				}
				poll()
				transporttest.WorldOf(t).Sleep(time.Millisecond)
			}
			if placing := s.Lanes()[0].Port.Traits().Polled; begun == placing {
				t.Fatalf("%d bytes: a brief signal has begun: %v; the lanes place parts: %v", n, begun, placing)
			}
			if !begun {
				return
			}
			number := -1
			transporttest.Await(t, "the signal", func() (done bool) {
				poll()
				var err error
				if done, number, err = told.TestSignal(true, nil); err != nil {
					t.Fatal(err)
				}
				return done
			})
			if number != 200+i {
				t.Errorf("%d bytes: signal of number %d, want %d", n, number, 200+i)
			}
			if diff := cmp.Diff(out[:n], in[:n]); diff != "" {
				t.Fatalf("%d bytes: they are not there when the signal is", n)
			}
			transporttest.Await(t, "the ends", func() bool { poll(); return len(ended) == len(ends) })
			if diff := cmp.Diff(ends, ended); diff != "" {
				t.Errorf("%d bytes: what has ended (-want +got):\n%s", n, diff)
			}
		}
		transporttest.CloseBoth(t, s, r)
	})
}
