package path

import (
	"errors"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/control"
	"ncclmesh/transport/lane"
)

const probePause = 100 * time.Millisecond // between two rounds

// probe is the result of a connection that only validates the lanes of a plan, all at once.
type probe struct {
	mask  uint32             // bit i: lane i was validated
	tried []conn.LaneFailure // the other lanes, and why they failed
	slow  string             // why the failures may not be the network's fault; see conn.Slowness
	err   error
}

// probe validates the lanes of a plan. It repeats the probe while no lane is validated and one of the two
// processes is slow.
func (f *Finder) probe(s *control.Session, plan []lane.Spec) (r probe) {
	for spent := time.Duration(0); ; {
		var ran time.Duration
		r, ran = f.round(s, plan)
		spent += ran + f.Env.Clock.Scaled(probePause)
		if r.err != nil || r.mask != 0 || r.slow == "" || spent >= f.Env.Clock.Scaled(f.Env.LaneWait) {
			return r
		}
		f.Env.Log.Debug("a path validation is repeated", "peer", s.Name(), "because", r.slow, "tried", r.tried)
		f.pause(probePause) // if the process ends, the next round fails
	}
}

// pause waits for d. It returns false if the process ends meanwhile.
func (f *Finder) pause(d time.Duration) bool {
	t := f.Env.Clock.NewTimer(f.Env.Clock.Scaled(d))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-f.Env.Context.Done():
		return false
	}
}

// round makes one attempt to validate the lanes of a plan. ran is the time for which this process was running.
func (f *Finder) round(s *control.Session, plan []lane.Spec) (r probe, ran time.Duration) {
	c := conn.NewProbe(f.Env, s, f.NewID(), true)
	if err := f.Add(c); err != nil {
		return probe{err: err}, 0
	}
	defer func() { r.err = errors.Join(r.err, c.Discard()) }()
	r.mask, r.err = c.Establish(f.Env.Context, plan, &handshake.Open{Conn: c.ID})
	if r.err != nil && !errors.Is(r.err, conn.ErrNoLane) {
		c.Fail(r.err)
		return probe{err: &probeError{r.err, c.String()}}, c.Ran()
	}
	r.err = nil
	_ = s.Send(&handshake.Bye{Conn: c.ID}) // ignore the error: a session that has ended needs no message
	r.tried = c.Failures()
	if r.mask == 0 {
		r.slow = c.Slowness()
	}
	return r, c.Ran()
}
