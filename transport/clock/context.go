package clock

import (
	"context"
	"time"
)

// WithTimeout is [context.WithTimeout].
func (c Clock) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if c.events == nil {
		return context.WithTimeout(parent, d)
	}
	return c.WithDeadline(parent, time.Now().Add(d))
}

// WithDeadline is [context.WithDeadline].
func (c Clock) WithDeadline(parent context.Context, at time.Time) (context.Context, context.CancelFunc) {
	if c.events == nil {
		return context.WithDeadline(parent, at)
	}
	if earlier, ok := parent.Deadline(); ok && earlier.Before(at) {
		return context.WithCancel(parent)
	}
	inner, cancel := context.WithCancelCause(parent)
	t := &timed{Context: inner, at: at, done: make(chan struct{})}
	context.AfterFunc(inner, func() { close(t.done) })
	stop := c.events.AfterFunc(time.Until(at), func() { cancel(context.DeadlineExceeded) })
	return t, func() {
		stop()
		cancel(context.Canceled)
	}
}

// timed is a context that a simulation ends at a time.
type timed struct {
	context.Context
	at   time.Time
	done chan struct{}
}

func (t *timed) Deadline() (time.Time, bool) { return t.at, true }
func (t *timed) Done() <-chan struct{}       { return t.done }

func (t *timed) Err() error {
	select {
	case <-t.done:
	default:
		return nil
	}
	if cause := context.Cause(t.Context); cause == context.DeadlineExceeded {
		return cause
	}
	return t.Context.Err()
}

// AfterFunc saves package context the goroutine that it starts for the children of a context it does not know.
func (t *timed) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(t.Context, func() {
		<-t.done
		f()
	})
}
