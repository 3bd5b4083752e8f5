package ncclnet

import (
	"sync"
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

// setUp is result for an error of connect or accept. NCCL opens many connections to a
// peer at once, which fail alike: that is logged once, until one is set up.
func (n *Net) setUp(call string, h Handle, err error) Result {
	if err == nil {
		if h != 0 {
			n.setUps.forget()
		}
		return ncclSuccess
	}
	if isNew, _ := n.setUps.news(call+err.Error(), time.Now()); !isNew {
		return resultOf(err)
	}
	return n.resultTo(n.log, 1, call, err)
}

// forget makes the next error one that is to be logged.
func (f *failure) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said, f.since, f.goingOn = "", time.Time{}, false
}
