package transporttest

import (
	"testing"
	"testing/synctest"
	"time"
)

// Time goes on in a bubble while something is awaited there.
func TestAwaitInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		due := time.Now().Add(time.Second)
		Await(t, "a second", func() bool { return !time.Now().Before(due) })
		if late := time.Since(due); late > time.Millisecond {
			t.Errorf("found %v late", late)
		}
	})
}
