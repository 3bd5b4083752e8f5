package fleet

import (
	"errors"
	"sync"
)

// Each calls do for all elements of a list at once, each in its own goroutine, and returns their errors when all calls have returned.
func Each[T any](all []T, do func(i int, v T) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, v := range all {
		wg.Go(func() { errs[i] = do(i, v) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
