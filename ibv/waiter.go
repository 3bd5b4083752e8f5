package ibv

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// How long a thread looks for completions before it waits: a wait and its end cost tens of microseconds.
const (
	spinFor   = time.Millisecond // after the last completion
	spinCount = 64               // fruitless looks between two at the clock
)

// pollWaiter waits in poll for the descriptors of channels and for an eventfd that wakes it.
type pollWaiter struct {
	kick   int
	fds    []unix.PollFd
	count  [8]byte   // what is read of the eventfd
	misses int       // looks that found nothing, one after the other
	since  time.Time // of the first of them
}

func (l *libibverbs) NewWaiter() (Waiter, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("ibv: cannot make an eventfd to wait with: %w", err)
	}
	return &pollWaiter{kick: fd}, nil
}

func (w *pollWaiter) Again(found bool) bool {
	if found {
		w.misses = 0
		return true
	}
	if w.misses++; w.misses == 1 {
		w.since = time.Now()
	}
	if w.misses%spinCount != 0 {
		return true
	}
	if time.Since(w.since) >= spinFor {
		w.misses = 0
		return false
	}
	runtime.Gosched() // the thread that is waited for may need the processor
	return true
}

func (w *pollWaiter) Wait(channels []*CompChannel, timeout time.Duration) {
	w.fds = append(w.fds[:0], unix.PollFd{Fd: int32(w.kick), Events: unix.POLLIN})
	for _, ch := range channels {
		w.fds = append(w.fds, unix.PollFd{Fd: int32(ch.FD()), Events: unix.POLLIN})
	}
	ms := -1
	if timeout >= 0 {
		ms = int((timeout + time.Millisecond - 1) / time.Millisecond)
	}
	_, _ = unix.Poll(w.fds, ms)
	_, _ = unix.Read(w.kick, w.count[:])
}

// one is what is written to an eventfd.
var one = [8]byte{1}

func (w *pollWaiter) Wake() { _, _ = unix.Write(w.kick, one[:]) } // a full counter wakes as well

func (w *pollWaiter) FD() int { return w.kick }

func (w *pollWaiter) Close() error { return unix.Close(w.kick) }
