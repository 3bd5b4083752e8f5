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

// trial is a connection that carries nothing but its proofs, over all lanes of a
// plan at once.
type trial struct {
	mask  uint32             // lanes that passed
	tried []conn.LaneFailure // why the others did not
	slow  string             // why that may be no evidence; see conn.Slowness
	err   error
}

// trial tries the lanes of a plan, again while none passes and one of the two
// processes is slow.
func (f *Finder) probe(s *control.Session, plan []lane.Spec) (r probe) {
	for spent := time.Duration(0); ; {
		var ran time.Duration
		r, ran = f.round(s, plan)
		spent += ran + f.Env.Scaled(probePause)
		if r.err != nil || r.mask != 0 || r.slow == "" || spent >= f.Env.Scaled(f.Env.LaneWait) {
			return r
		}
		f.Env.Log.Debug("a path validation is repeated", "peer", s.Name(), "because", r.slow, "tried", r.tried)
		f.pause(probePause) // cut short by the end, at which the next round fails
	}
}

// pause waits; it reports false when the process ended meanwhile.
func (f *Finder) pause(d time.Duration) bool {
	t := f.Env.Clock.NewTimer(f.Env.Scaled(d))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-f.Env.Context.Done():
		return false
	}
}

// round tries the lanes of a plan once. It returns how long this process ran.
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
	_ = s.Send(&handshake.Bye{Conn: c.ID}) // a dead session needs none
	r.tried = c.Failures()
	if r.mask == 0 {
		r.slow = c.Slowness()
	}
	return r, c.Ran()
}
