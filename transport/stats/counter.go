package stats

import "sync/atomic"

// Counter counts up. It has one writer at a time and any number of readers.
type Counter struct{ n uint64 }

// Add adds n. Only the counter's one writer may call it; the owner of the counter says which goroutine that is.
func (c *Counter) Add(n uint64) { set(&c.n, c.n+n) }

// Value returns the sum of all additions.
func (c *Counter) Value() uint64 { return atomic.LoadUint64(&c.n) }
