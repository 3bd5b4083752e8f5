package ncclnet

import (
	"sync"
	"sync/atomic"
	"time"
)

// goesOn is how long NCCL may go on using a connection that has failed. It should
// stop, or be stopped, long before.
const goesOn = 10 * time.Second

// lostErrors is what the log says then.
const lostErrors = "NCCL goes on using a connection that has failed, as 2.26.2 to 2.27.7 do, which lose the errors of their network " +
	"(NVIDIA/nccl#1822): the job will hang. End it; use an older or a newer NCCL"

// A failure is what the log has said of a connection. NCCL may call many times
// until somebody stops it, and gets the same answer each time.
type failure struct {
	mu      sync.Mutex
	said    string // the last error that was logged
	since   time.Time
	goingOn bool // that was logged too
}

// news reports whether an error is to be logged, and whether NCCL has gone on for
// too long, each once.
func (f *failure) news(text string, now time.Time) (isNew, goingOn bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since.IsZero() {
		f.since = now
	}
	isNew = f.said != text
	f.said = text
	goingOn = !f.goingOn && now.Sub(f.since) > goesOn
	f.goingOn = f.goingOn || goingOn
	return isNew, goingOn
}

// failed is result for an error of a connection: it is logged once.
func (n *Net) failed(c *comm, call string, err error) Result {
	if err == nil {
		return ncclSuccess
	}
	isNew, goingOn := c.failure.news(err.Error(), time.Now())
	if goingOn {
		n.log.Warn(lostErrors)
	}
	if !isNew {
		return resultOf(err)
	}
	return n.resultTo(n.log, 1, call, err)
}

// attempts counts the connects and listens of the process, and knows of what the log has said
// that one failed.
type attempts struct {
	begun atomic.Uint64

	mu   sync.Mutex
	said string // the last error that was logged
	upTo uint64 // how many attempts had begun by then
}

// begin returns the number of a new attempt, which is not 0.
func (a *attempts) begin() uint64 { return a.begun.Add(1) }

// news reports whether the error of an attempt is to be logged. NCCL opens many connections to a
// peer at once, which fail alike: that is logged once for all that had begun by then. An attempt
// that begins later may be another communicator's, whose user asks for the reason anew.
func (a *attempts) news(text string, attempt uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.said == text && attempt <= a.upTo {
		return false
	}
	a.said, a.upTo = text, a.begun.Load()
	return true
}

// notSetUp is result for an error of connect or accept that ended that attempt; 0 is none.
func (n *Net) notSetUp(call string, attempt uint64, err error) Result {
	if err == nil {
		return ncclSuccess
	}
	if !n.attempts.news(call+err.Error(), attempt) {
		return resultOf(err)
	}
	return n.resultTo(n.log, 1, call, err)
}
