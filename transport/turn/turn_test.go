package turn

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Virtual time goes on while one holds the turn and others wait for it.
func TestHeldAcrossAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn Turn
		begun, inside := time.Now(), 0
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				turn.Lock()
				defer turn.Unlock()
				if inside++; inside != 1 {
					t.Errorf("%d hold it", inside)
				}
				time.Sleep(time.Second)
				inside--
			})
		}
		wg.Wait()
		if got := time.Since(begun); got != 5*time.Second {
			t.Errorf("five turns of a second took %v", got)
		}
	})
}

func TestUnlockOfNobody(t *testing.T) {
	var turn Turn
	defer func() {
		if recover() == nil {
			t.Error("a turn that nobody holds was given back")
		}
	}()
	turn.Unlock()
}
