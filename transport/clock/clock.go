package clock

import (
	"cmp"
	"context"
	"time"
)

// A Clock makes timers, and says how much longer waits are on a slow machine. The zero value makes the timers of package
// time, and leaves waits as they are.
type Clock struct {
	events Events
	scale  float64 // 0: 1
}

// Events calls functions later: the timers of a simulation.
type Events interface {
	// AfterFunc calls f once, in d. f does not block. stop takes the call back, and reports whether it had not been made.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// New returns a clock whose timers are calls of e.
func New(e Events) Clock { return Clock{events: e} }

// WithScale returns the clock with another scale, which must be above 0.
func (c Clock) WithScale(scale float64) Clock {
	c.scale = scale
	return c
}

// Scale returns the factor by which waits are longer on this machine, such as an emulated one.
func (c Clock) Scale() float64 { return cmp.Or(c.scale, 1) }

// Scaled returns d times the scale. The Clock's other methods do not scale.
func (c Clock) Scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * c.Scale()) }

// Sleep waits for d.
func (c Clock) Sleep(d time.Duration) {
	if c.events == nil {
		time.Sleep(d)
		return
	}
	if d > 0 {
		<-c.NewTimer(d).C
	}
}

// Pause waits for d, or until ctx ends. It reports false when ctx ended first.
func (c Clock) Pause(ctx context.Context, d time.Duration) bool {
	t := c.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// After returns a channel to which the time is sent in d.
func (c Clock) After(d time.Duration) <-chan time.Time { return c.NewTimer(d).C }

// AfterFunc calls f in d, on a goroutine of its own. The timer has no channel.
func (c Clock) AfterFunc(d time.Duration, f func()) *Timer {
	if c.events == nil {
		return &Timer{real: time.AfterFunc(d, f)}
	}
	t := &Timer{call: call{events: c.events, f: func() { time.AfterFunc(0, f) }}}
	t.set(d)
	return t
}

// NewTimer returns a timer that sends the time to its channel in d.
func (c Clock) NewTimer(d time.Duration) *Timer {
	if c.events == nil {
		t := time.NewTimer(d)
		return &Timer{C: t.C, real: t}
	}
	to := make(chan time.Time, 1)
	t := &Timer{C: to, call: call{events: c.events, to: to}}
	t.f = t.send
	t.set(d)
	return t
}

// NewTicker returns a ticker that sends the time to its channel every d. d must be positive.
func (c Clock) NewTicker(d time.Duration) *Ticker {
	if c.events == nil {
		t := time.NewTicker(d)
		return &Ticker{C: t.C, real: t}
	}
	to := make(chan time.Time, 1)
	t := &Ticker{C: to, call: call{events: c.events, to: to}}
	t.f = func() {
		t.send()
		t.set(d)
	}
	t.set(d)
	return t
}

// A Timer is a [time.Timer], or an event of a simulation.
type Timer struct {
	C    <-chan time.Time
	real *time.Timer
	call
}

// Stop stops the timer, as that of a [time.Timer] does: nothing is in the channel after it.
func (t *Timer) Stop() bool {
	if t.real != nil {
		return t.real.Stop()
	}
	return t.unset()
}

// Reset makes the timer fire in d, and not when it was to fire before.
func (t *Timer) Reset(d time.Duration) bool {
	if t.real != nil {
		return t.real.Reset(d)
	}
	was := t.unset()
	t.set(d)
	return was
}

// A Ticker is a [time.Ticker], or events of a simulation.
type Ticker struct {
	C    <-chan time.Time
	real *time.Ticker
	call
}

// Stop stops the ticker.
func (t *Ticker) Stop() {
	if t.real != nil {
		t.real.Stop()
		return
	}
	t.unset()
}
