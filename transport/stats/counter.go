package stats

import "sync/atomic"

// Counter counts up. It has one writer at a time, which costs less than a locked
// addition, and any number of readers.
type Counter struct{ n atomic.Uint64 }

// Add counts n more. Who may call it is for the owner of the counter to say.
func (c *Counter) Add(n uint64) { c.n.Store(c.n.Load() + n) }

// Value is what has been counted.
func (c *Counter) Value() uint64 { return c.n.Load() }
