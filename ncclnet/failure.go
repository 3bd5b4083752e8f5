package ncclnet

import (
	"sync"
	"sync/atomic"
	"time"
)

// useAfterFailure is how long NCCL may continue to use a connection that has failed before a warning is logged. NCCL
// normally stops, or is stopped, long before.
const useAfterFailure = 10 * time.Second

// lostErrors is the text of that warning.
const lostErrors = "NCCL goes on using a connection that has failed, as 2.26.2 to 2.27.7 do, which lose the errors of their network " +
	"(NVIDIA/nccl#1822): the job will hang. End it; use an older or a newer NCCL"

// A failure records which errors of a connection or a group have been logged. NCCL may call many times until it is stopped, and
// gets the same result each time.
type failure struct {
	mu     sync.Mutex
	logged string // the last error that was logged
	since  time.Time
	warned bool // lostErrors was logged, or is not true of the NCCLs that can use the object
}

// record reports whether an error has to be logged, and whether lostErrors has to be logged because NCCL has continued
// for too long. It returns true once for each.
func (f *failure) record(text string, now time.Time) (isNew, tooLong bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since.IsZero() {
		f.since = now
	}
	isNew = f.logged != text
	f.logged = text
	tooLong = !f.warned && now.Sub(f.since) > useAfterFailure
	f.warned = f.warned || tooLong
	return isNew, tooLong
}

// failed logs an error of a connection or a group, once, and returns its Result.
func (n *Net) failed(f *failure, call string, err error) Result {
	if err == nil {
		return ncclSuccess
	}
	isNew, tooLong := f.record(err.Error(), time.Now())
	if tooLong {
		n.log.Warn(lostErrors)
	}
	if !isNew {
		return resultOf(err)
	}
	return n.resultTo(n.log, 1, call, err)
}

// attempts counts the connects and listens of the process, and records which of their errors have been logged.
type attempts struct {
	begun atomic.Uint64

	mu     sync.Mutex
	logged string // the last error that was logged
	upTo   uint64 // number of attempts that had begun by then
}

// begin returns the number of a new attempt, from 1.
func (a *attempts) begin() uint64 { return a.begun.Add(1) }

// record reports whether the error of an attempt has to be logged. NCCL opens many connections to a peer at once, which
// fail with the same error. That error is logged once for all attempts that had begun by then. A later attempt may
// belong to another communicator, whose user needs the reason again.
func (a *attempts) record(text string, attempt uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.logged == text && attempt <= a.upTo {
		return false
	}
	a.logged, a.upTo = text, a.begun.Load()
	return true
}

// notSetUp logs an error of connect or accept, and returns its Result. attempt is the attempt that the error ended, or
// 0.
func (n *Net) notSetUp(call string, attempt uint64, err error) Result {
	if err == nil {
		return ncclSuccess
	}
	if !n.attempts.record(call+err.Error(), attempt) {
		return resultOf(err)
	}
	return n.resultTo(n.log, 1, call, err)
}
