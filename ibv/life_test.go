package ibv

import (
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// While an object is destroyed, which may take long, others that close it or make something from it wait without holding up
// the process: in a bubble virtual time goes on, which it does not while a goroutine waits for a mutex.
func TestDestroyingTakesLong(t *testing.T) {
	refused := errors.New("busy")
	for _, tt := range []struct {
		name  string
		err   error // of the first attempt
		close []error
		begin error
	}{
		{"destroyed", nil, []error{nil, nil}, net.ErrClosed},
		{"refused once", refused, []error{refused, nil}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l, child life
				if err := l.begin(kindPD); err != nil {
					t.Fatal(err)
				}
				attempts := 0
				destroy := func() error {
					attempts++
					time.Sleep(time.Second)
					if attempts == 1 {
						return tt.err
					}
					return nil
				}
				var closed [2]error
				var begun error
				var wg sync.WaitGroup
				wg.Go(func() { closed[0] = l.end("it", destroy) })
				synctest.Wait()
				wg.Go(func() { // before the attempt is over
					if begun = child.begin(kindMR, &l); begun == nil {
						child.abandon()
					}
				})
				wg.Wait()
				closed[1] = l.end("it", destroy)
				for i, want := range tt.close {
					if !errors.Is(closed[i], want) {
						t.Errorf("close %d: %v, want %v", i, closed[i], want)
					}
				}
				if !errors.Is(begun, tt.begin) {
					t.Errorf("a child: %v, want %v", begun, tt.begin)
				}
				if live := Live(); len(live) != 0 {
					t.Errorf("left open: %v", live)
				}
			})
		})
	}
}

// Several that close one object at once destroy it once.
func TestClosingTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l life
		if err := l.begin(kindPD); err != nil {
			t.Fatal(err)
		}
		destroyed := 0
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if err := l.end("it", func() error { destroyed++; time.Sleep(time.Second); return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if destroyed != 1 {
			t.Errorf("destroyed %d times", destroyed)
		}
	})
}

// A panic on the way leaves the object open, and nobody waiting.
func TestDestroyPanics(t *testing.T) {
	var l life
	if err := l.begin(kindPD); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = l.end("it", func() error { panic("no") })
	}()
	if err := l.end("it", func() error { return nil }); err != nil {
		t.Error(err)
	}
	if live := Live(); len(live) != 0 {
		t.Errorf("left open: %v", live)
	}
}
