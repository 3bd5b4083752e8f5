package clock

import (
	"sync"
	"time"
)

// call is a call of a simulation that may be asked for again and again.
type call struct {
	events Events
	f      func()
	to     chan time.Time // of one place; nil: f does not send

	mu   sync.Mutex
	stop func() bool // nil: not asked for
	n    uint64      // of set and unset
}

// set asks for the call in d, unless unset is called before.
func (c *call) set(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	n := c.n
	c.stop = c.events.AfterFunc(d, func() {
		c.mu.Lock()
		due := c.n == n
		if due {
			c.stop = nil
		}
		c.mu.Unlock()
		if due {
			c.f()
		}
	})
}

// unset takes the call back, and what it has sent. It reports whether there was one of the two.
func (c *call) unset() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	was := c.stop != nil && c.stop()
	c.stop = nil
	select {
	case <-c.to: // of a nil channel nothing ever comes
		return true
	default:
		return was
	}
}

// send sends the time, unless the last was not taken.
func (c *call) send() {
	select {
	case c.to <- time.Now():
	default:
	}
}
