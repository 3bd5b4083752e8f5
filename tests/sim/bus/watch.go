package bus

import (
	"os"
	"runtime/pprof"
	"sync/atomic"
	"time"
)

// standstill is how long, of real time, no event may be released. Virtual time stands still where a goroutine of the bubble
// waits for what is no durable wait: a mutex that is held across a wait, a descriptor, a system call; or where it does not
// wait at all.
const standstill = 2 * time.Minute

// watch ends the program, with the stacks of all goroutines, when released stops to grow. It is called outside the bubble,
// and returns what ends the watch.
func watch(released *atomic.Int64) (stop func()) {
	done := make(chan struct{})
	go func() {
		for last := int64(-1); ; {
			select {
			case <-done:
				return
			case <-time.After(standstill):
			}
			now := released.Load()
			if now == last {
				_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
				panic("bus: virtual time stands still: look for the goroutine that waits for a mutex, for I/O or in a system call")
			}
			last = now
		}
	}()
	return func() { close(done) }
}
