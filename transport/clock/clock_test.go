package clock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// events are calls of package time, which can be held back.
type events struct {
	mu   sync.Mutex
	held bool
	late []func()
}

func (e *events) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, func() {
		if !e.keep(f) {
			f()
		}
	}).Stop
}

// keep keeps a call that is held back, and reports whether it is.
func (e *events) keep(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held {
		e.late = append(e.late, f)
	}
	return e.held
}

// free makes the calls that were held back.
func (e *events) free() {
	e.mu.Lock()
	late := e.late
	e.held, e.late = false, nil
	e.mu.Unlock()
	for _, f := range late {
		f()
	}
}

// All timers behave as those of package time do, also where they are events.
func TestTimers(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(c Clock, log func(...any))
	}{
		{"timer", func(c Clock, log func(...any)) {
			timer := c.NewTimer(time.Second)
			<-timer.C
			log("stopped", timer.Stop())
			log("set", timer.Reset(2*time.Second))
			log("set again", timer.Reset(3*time.Second))
			<-timer.C
			log("fired")
		}},
		{"nothing is left behind", func(c Clock, log func(...any)) {
			timer := c.NewTimer(time.Second)
			time.Sleep(2 * time.Second)
			log("set", timer.Reset(time.Minute))
			select {
			case <-timer.C:
				log("stale")
			case <-time.After(time.Second):
				log("nothing")
			}
			log("stopped", timer.Stop(), timer.Stop())
		}},
		{"ticker", func(c Clock, log func(...any)) {
			ticker := c.NewTicker(time.Second)
			<-ticker.C
			<-ticker.C
			time.Sleep(3500 * time.Millisecond) // of those that are missed one is kept
			<-ticker.C
			log("late")
			<-ticker.C
			log("in time")
			ticker.Stop()
			select {
			case <-ticker.C:
				log("ticks on")
			case <-time.After(time.Hour):
			}
		}},
		{"sleep, after, pause", func(c Clock, log func(...any)) {
			c.Sleep(0)
			c.Sleep(-1)
			log("no sleep")
			c.Sleep(time.Second)
			<-c.After(time.Second)
			ctx, cancel := context.WithCancel(context.Background())
			log("paused", c.Pause(ctx, time.Second))
			cancel()
			log("paused", c.Pause(ctx, time.Second))
		}},
		{"function", func(c Clock, log func(...any)) {
			done := make(chan struct{})
			c.AfterFunc(time.Second, func() { close(done) })
			<-done
			log("called")
			timer := c.AfterFunc(time.Second, func() { log("called in vain") })
			log("stopped", timer.Stop())
			time.Sleep(time.Minute)
		}},
		{"context", func(c Clock, log func(...any)) {
			ctx, cancel := c.WithTimeout(context.Background(), time.Second)
			defer cancel()
			child, end := context.WithCancel(ctx)
			defer end()
			until, ok := child.Deadline()
			log("deadline", time.Until(until), ok, child.Err())
			<-child.Done()
			log("over", child.Err(), context.Cause(child), ctx.Err())
			later, stop := c.WithTimeout(ctx, time.Hour)
			<-later.Done()
			log("child", later.Err())
			stop()
		}},
		{"context that is cancelled", func(c Clock, log func(...any)) {
			parent, end := context.WithCancel(context.Background())
			ctx, cancel := c.WithTimeout(parent, time.Second)
			defer cancel()
			end()
			<-ctx.Done()
			log("over", ctx.Err())
			own, cancel := c.WithTimeout(context.Background(), time.Second)
			cancel()
			<-own.Done()
			log("over", own.Err(), context.Cause(own))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			play := func(c func() Clock) (log [][]any) {
				synctest.Test(t, func(*testing.T) {
					start := time.Now()
					tt.do(c(), func(what ...any) { log = append(log, append(what, time.Since(start))) })
				})
				return log
			}
			want := play(func() Clock { return Clock{} })
			got := play(func() Clock { return New(&events{}) })
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b error) bool { return errors.Is(a, b) })); diff != "" || len(want) == 0 {
				t.Errorf("package time (-), events (+):\n%s", diff)
			}
		})
	}
}

// A timer that is due and held back can still be stopped, and set anew.
func TestHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &events{held: true}
		c := New(e)
		stopped, again, due := c.NewTimer(time.Second), c.NewTimer(time.Second), c.NewTimer(time.Second)
		time.Sleep(time.Minute)
		stopped.Stop()
		again.Reset(time.Hour)
		e.free()
		<-due.C
		time.Sleep(time.Minute)
		select {
		case <-stopped.C:
			t.Error("a timer that was stopped has fired")
		case <-again.C:
			t.Error("a timer that was set anew has fired when it was to fire before")
		default:
		}
		<-again.C
	})
}

// A clock scales the waits that its users ask it to scale, and no timers.
func TestScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for scale, c := range map[float64]Clock{1: {}, 5: Clock{}.WithScale(5), 0.5: New(&events{}).WithScale(5).WithScale(0.5)} {
			start := time.Now()
			<-c.NewTimer(time.Second).C
			if got := c.Scaled(time.Second); got != time.Duration(scale*float64(time.Second)) || c.Scale() != scale || time.Since(start) != time.Second {
				t.Errorf("scale %v: %v, a second is %v, and a timer of it took %v", scale, c.Scale(), got, time.Since(start))
			}
		}
	})
}
