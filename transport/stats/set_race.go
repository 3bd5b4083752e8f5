//go:build race

package stats

import "sync/atomic"

// set stores a word atomically, because the race detector would report a plain store.
func set(word *uint64, v uint64) { atomic.StoreUint64(word, v) }
