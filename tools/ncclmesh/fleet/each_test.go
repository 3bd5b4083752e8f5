package fleet

import (
	"errors"
	"testing"
)

// Each waits for all calls, which run at once, and returns the errors of those that failed.
func TestEach(t *testing.T) {
	odd := errors.New("odd")
	met := make(chan int)
	err := Each([]int{2, 3}, func(i, v int) error {
		if i == 0 { // each call needs the other one
			met <- v
		} else if first := <-met; first != 2 {
			t.Errorf("met %d, want 2", first)
		}
		if v%2 == 1 {
			return odd
		}
		return nil
	})
	if !errors.Is(err, odd) {
		t.Errorf("error %v, want %v", err, odd)
	}
}
