package transporttest

import (
	"math"
	"syscall"
	"testing"
	"time"

	"ncclmesh/tests/sim/adapter"
	"ncclmesh/tests/sim/world"
)

// over calls f with both adapters of the cables of those numbers, of all without a number.
func over(t testing.TB, cables []int, f func(*world.Adapter)) {
	t.Helper()
	w := WorldOf(t)
	if len(cables) == 0 {
		cables = []int{0, 1}
	}
	for _, n := range cables {
		for _, a := range w.Cables[n].Adapters {
			f(a)
		}
	}
}

// Stall has nothing arrive any more of what adapters send over some cables, or over all, while sockets go on.
func Stall(t testing.TB, cables ...int) {
	t.Helper()
	over(t, cables, func(a *world.Adapter) { a.Lose(adapter.Loss{Data: 1, Acks: 1}) })
}

// LoseAcks has no acknowledgement of adapters arrive over some cables, or over all: what it is of has.
func LoseAcks(t testing.TB, cables ...int) {
	t.Helper()
	over(t, cables, func(a *world.Adapter) { a.Lose(adapter.Loss{Acks: 1}) })
}

// Late delays all that adapters send by a time.
func Late(t testing.TB, by time.Duration) {
	t.Helper()
	over(t, nil, func(a *world.Adapter) { a.Delay(by) })
}

// CompleteLate shows completions of adapters later than the events they report, each by a drawn time of at most most.
func CompleteLate(t testing.TB, most time.Duration) {
	t.Helper()
	over(t, nil, func(a *world.Adapter) { a.Device.Late(most) })
}

// Refuse has all calls of a verb fail.
func Refuse(t testing.TB, verb string, errno syscall.Errno) {
	t.Helper()
	over(t, nil, func(a *world.Adapter) { a.Device.Refuse(verb, errno, 0, math.MaxInt) })
}

// Heal ends what the other functions of this file do.
func Heal(t testing.TB) {
	t.Helper()
	over(t, nil, func(a *world.Adapter) {
		a.Lose(adapter.Loss{})
		a.Delay(0)
		a.Device.Late(0)
		a.Device.Allow()
	})
}
