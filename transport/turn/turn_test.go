package turn

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Virtual time goes on while one holds the turn and others wait for it, who have it in the order in which they came.
func TestHeldAcrossAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn Turn
		var order []int
		begun, inside := time.Now(), 0
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				turn.Lock()
				defer turn.Unlock()
				if inside++; inside != 1 {
					t.Errorf("%d hold it", inside)
				}
				order = append(order, i)
				time.Sleep(time.Second)
				inside--
			})
			synctest.Wait()
		}
		wg.Wait()
		if got := time.Since(begun); got != 5*time.Second {
			t.Errorf("five turns of a second took %v", got)
		}
		if !slices.Equal(order, []int{0, 1, 2, 3, 4}) {
			t.Errorf("the order is %v", order)
		}
	})
}

// However many threads there are, one at a time holds the turn.
func TestOneAtATime(t *testing.T) {
	const goroutines, rounds = 8, 2000
	var turn Turn
	n, tried := 0, 0
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for range rounds {
				if i%2 == 0 || !turn.TryLock() {
					turn.Lock()
				} else {
					tried++
				}
				n++
				turn.Unlock()
			}
		})
	}
	wg.Wait()
	if n != goroutines*rounds {
		t.Errorf("%d of %d turns were counted, %d of them taken at once", n, goroutines*rounds, tried)
	}
}

// A turn that is handed on is not free in between.
func TestTryLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn Turn
		if !turn.TryLock() {
			t.Fatal("a free turn is not to be had")
		}
		if turn.TryLock() {
			t.Fatal("two hold the turn")
		}
		go func() {
			turn.Lock()
			time.Sleep(time.Second)
			turn.Unlock()
		}()
		synctest.Wait()
		turn.Unlock()
		if turn.TryLock() {
			t.Error("the turn is to be had although another has waited for it")
		}
		time.Sleep(2 * time.Second)
		if !turn.TryLock() {
			t.Error("a turn that was given back is not to be had")
		}
	})
}

// take takes a lock and gives it back at once.
func take(l sync.Locker) {
	l.Lock()
	defer l.Unlock()
}

// The data path takes turns.
func TestAllocatesNothing(t *testing.T) {
	var turn Turn
	if n := testing.AllocsPerRun(100, func() {
		take(&turn)
		if turn.TryLock() {
			turn.Unlock()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
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

func BenchmarkTurn(b *testing.B) {
	var turn Turn
	for b.Loop() {
		take(&turn)
	}
}

func BenchmarkMutex(b *testing.B) {
	var mu sync.Mutex
	for b.Loop() {
		take(&mu)
	}
}
