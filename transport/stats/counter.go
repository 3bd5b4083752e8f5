package stats

import "sync/atomic"

// Counter counts up. It has one writer at a time and any number of readers.
type Counter struct{ n uint64 }

// Add counts n more. Who may call it is for the owner of the counter to say.
func (c *Counter) Add(n uint64) { set(&c.n, c.n+n) }

// Value is what has been counted.
func (c *Counter) Value() uint64 { return atomic.LoadUint64(&c.n) }
