package comm

import (
	"sync"
	"sync/atomic"
	"time"

	"ncclmesh/transport/onesided"
)

// A load is one caller's reading of a word in GPU memory.
type load struct {
	value  atomic.Uint64 // stored when the word was read, also where the caller has given up
	number onesided.Load // 0: no reading is under way
}

// loads holds those that are not used.
var loads = sync.Pool{New: func() any { return new(load) }}

// release ends the caller's use.
func (l *load) release() {
	if l.number == 0 {
		loads.Put(l)
	}
}

// poll begins to read the word at an offset of the local buffer, or goes on with that. It reports whether value is what was read.
func (b *Buffer) poll(l *load, offset uint64) (done bool, err error) {
	if l.number == 0 {
		l.number, err = b.local.Load(offset, &l.value)
		return false, err
	}
	if done, err = b.comm.space.Loaded(l.number); done {
		l.number = 0
	}
	return done && err == nil, err
}

// loadGPU is Load of a word in GPU memory.
func (b *Buffer) loadGPU(offset uint64) (uint64, error) {
	l := loads.Get().(*load)
	defer l.release()
	err := b.comm.await(Forever, nil, func() (bool, error) { return b.poll(l, offset) })
	return l.value.Load(), err
}

// longestLoadPause is the longest pause between two readings of a call that waits for a word. A pause is a sixteenth of the time that
// the call has waited.
const longestLoadPause = time.Millisecond

// waitGPU is Wait for a word in GPU memory.
func (b *Buffer) waitGPU(offset, value uint64, timeout time.Duration, what func() string) error {
	l := loads.Get().(*load)
	defer l.release()
	begun := time.Now()
	due := begun
	var lost error // why no further signal comes; the reading after it is the last
	return b.comm.await(timeout, what, func() (bool, error) {
		if l.number == 0 && lost == nil {
			if lost = b.lost(); lost == nil && time.Now().Before(due) {
				return false, nil
			}
		}
		done, err := b.poll(l, offset)
		switch {
		case !done || err != nil:
			return false, err
		case l.value.Load() >= value:
			return true, nil
		case lost != nil:
			return false, lost
		}
		now := time.Now()
		due = now.Add(min(now.Sub(begun)/16, longestLoadPause))
		return false, nil
	})
}
