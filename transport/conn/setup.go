package conn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/limit"
)

// ErrNoLane is the end of a trial, or of lanes that were to join, of which none proved itself;
// and of a connection's first ones where a node lacked something for them.
var ErrNoLane = errors.New("no lane works")

// setup is how lanes of a connection come into service: the first, or more that join them.
type setup struct {
	c        *Conn
	epoch    uint32                 // of the lanes: 0 of the first
	lanes    []*lane.Lane           // that are being set up
	inbox    chan handshake.Message // what the peer says meanwhile
	finished atomic.Bool            // they are in service: lanes may fail, and the connection live on

	// Whether the two processes run.
	clock              clock.Watch
	longestSilence     time.Duration // longest that the peer has owed an answer on the session
	livenessProbed     bool          // it for a sign of life, while a lane is missing
	onlyKernelAnswered bool          // a lane's proof was acknowledged and the peer sent none
}

func newSetup(c *Conn, epoch uint32) *setup {
	return &setup{
		c: c, epoch: epoch, inbox: make(chan handshake.Message, 4+lane.MaxParts),
		clock: clock.Watch{Most: c.env.Scaled(2 * clock.LookEvery)},
	}
}

// patience is how long a set-up waits for its first lane. Those that join are of paths that have just been proved: they have
// as long as the proof had.
func (s *setup) firstLaneTimeout() time.Duration {
	switch {
	case s.epoch == 0:
		return s.c.env.Scaled(s.c.env.LaneWait)
	case slices.ContainsFunc(s.lanes, func(l *lane.Lane) bool { return l.Route != nil }):
		return relayedTimeouts * s.c.env.Scaled(s.c.env.ProofWait)
	}
	return s.c.env.Scaled(s.c.env.ProofWait)
}

// lane is the lane of that index that is being set up, or nil.
func (s *setup) lane(index uint8) *lane.Lane {
	for _, l := range s.lanes {
		if l.Index == index {
			return l
		}
	}
	return nil
}

// all has a bit for each lane that is being set up.
func (s *setup) laneMask() (mask uint32) {
	for _, l := range s.lanes {
		mask |= 1 << l.Index
	}
	return mask
}

// Establish sets the lanes of plan up from the sender's side. open is what the
// peer is told, but for the lanes. It returns the lanes in service. When there
// are none each lane has its reason, and the error is ErrNoLane of a trial, and where a node
// lacked something, else nil: the connection waits for another way.
func (c *Conn) Establish(ctx context.Context, plan []lane.Plan, open *handshake.Open) (uint32, error) {
	s := c.firstSetup
	if ctx.Err() != nil { // and who closes it may be at work
		return 0, c.abandoned()
	}
	if err := c.env.LanePool.Do(func() error { return s.build(plan) }); err != nil {
		return 0, err
	}
	return s.offer(ctx, open)
}

// Answer sets up from the receiver's side what the sender has opened: plan is this
// side's half of each lane that m offers.
func (c *Conn) Answer(ctx context.Context, plan []lane.Plan, m *handshake.Open) (uint32, error) {
	s := c.firstSetup
	if ctx.Err() != nil { // and who closes it may be at work
		return 0, c.abandoned()
	}
	for i := range m.Lanes {
		if int(m.Lanes[i].Index) != i {
			return 0, fmt.Errorf("%w: %v: peer offers lane %d as its number %d", fault.ErrProtocol, c, m.Lanes[i].Index, i)
		}
	}
	if err := c.setPeerDomains(m.Base, m.Domains); err != nil {
		return 0, err
	}
	if err := c.env.LanePool.Do(func() error { return s.build(plan) }); err != nil {
		return 0, err
	}
	return s.answer(ctx, m)
}

// offer takes lanes that have been made into service, from the sender's side.
func (s *setup) offer(ctx context.Context, open *handshake.Open) (uint32, error) {
	open.Epoch, open.Base = s.epoch, uint64(s.c.Ring.Base())
	open.Domains, open.Lanes = s.domainsAndLanes(s.laneMask())
	if err := s.c.send(open); err != nil {
		return 0, err
	}
	acc, err := expect[*handshake.Accept](ctx, s)
	if err != nil {
		return 0, err
	}
	if err := s.c.setPeerDomains(acc.Base, acc.Domains); err != nil {
		return 0, err
	}
	connected := s.connectLanes(ctx, acc.Domains, acc.Lanes)
	if err := s.c.send(&handshake.Connected{Conn: s.c.ID, Epoch: s.epoch, Lanes: connected}); err != nil {
		return 0, err
	}
	proved, _, err := s.validate(ctx, connected)
	if err != nil {
		return 0, err
	}
	if err := s.c.send(s.validatedMessage(proved)); err != nil {
		return 0, err
	}
	theirs, err := expect[*handshake.Proved](ctx, s)
	if err != nil {
		return 0, err
	}
	return s.putInService(proved, theirs)
}

// answer takes lanes that have been made into service, from the receiver's side.
func (s *setup) answer(ctx context.Context, m *handshake.Open) (uint32, error) {
	connected := s.connectLanes(ctx, m.Domains, m.Lanes)
	acc := &handshake.Accept{Conn: s.c.ID, Epoch: s.epoch, Base: uint64(s.c.Ring.Base())}
	acc.Domains, acc.Lanes = s.domainsAndLanes(connected)
	if err := s.c.send(acc); err != nil {
		return 0, err
	}
	reached, err := expect[*handshake.Connected](ctx, s)
	if err != nil {
		return 0, err
	}
	proved, theirs, err := s.validate(ctx, connected&reached.Lanes)
	if err != nil {
		return 0, err
	}
	return s.putInService(proved, theirs)
}

// send gives the peer a set-up message.
func (c *Conn) send(m handshake.Message) error {
	if err := c.Session.Send(m); err != nil {
		return fmt.Errorf("%w: %v: %w", c.sendErrorKind(), c, err)
	}
	return nil
}

// unsentKind is the kind of a message's failure: only a live session may be to blame
// for it.
func (c *Conn) sendErrorKind() error {
	if c.Session.Alive() {
		return fault.ErrInternal
	}
	return fault.ErrPeerGone
}

// validatedMessage is what this side tells of its proofs.
func (s *setup) validatedMessage(proved uint32) *handshake.Proved {
	m := &handshake.Proved{Conn: s.c.ID, Epoch: s.epoch, Lanes: proved}
	for _, l := range s.lanes {
		if proved&(1<<l.Index) == 0 && l.Why() != nil {
			f, why := handshake.LaneFailure{Index: l.Index}, l.Why()
			var node *lane.NodeFault
			if errors.As(why, &node) {
				f.Cause, why = handshake.CauseNode, node.Err
			}
			f.Reason = why.Error()
			m.Failed = append(m.Failed, f)
		}
	}
	return m
}

// putInService puts the lanes into service that both sides have proved, and gives the
// others back. A receiver has done so before it tells the sender, whose first write may come
// at once, and tells it before anybody can say that one of them has failed since: the sender
// would take that, too early, for word of a lane that is not to be.
func (s *setup) putInService(proved uint32, theirs *handshake.Proved) (uint32, error) {
	mask := proved & theirs.Lanes
	for _, f := range theirs.Failed {
		s.laneFailed(f.Index, f.Cause, f.Reason)
	}
	s.c.mu.Lock()
	missing := fmt.Errorf("%s could not connect its end of the lane", s.c.Session.Name())
	if s.c.state.At() >= Stopped {
		mask, missing = 0, s.c.abandoned()
	}
	for _, l := range s.lanes {
		bit := uint32(1) << l.Index
		if mask&bit != 0 && l.Enter(lane.Up) {
			s.c.showLane(l)
			continue
		}
		mask &^= bit
		if l.Why() == nil {
			l.Fail(missing)
		}
		if err := s.c.guarded("close", l.Carrier.Close); err != nil {
			s.c.env.Log.Debug("an unused lane did not close", "lane", l.String(), "err", err)
			continue
		}
		l.Enter(lane.Stopped)
	}
	s.installLanes()
	var err error
	if !s.c.Sending {
		err = s.c.send(s.validatedMessage(proved & mask))
	}
	if mask == 0 && err == nil {
		err = s.noLaneUp()
	}
	s.c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	s.finish(mask)
	return mask, nil
}

// noLaneUp is the outcome where no lane can be put into service. A connection whose first
// lanes all fail, though their paths were proved before, is one that has lost them, and
// waits for a way like any other: also where a process seemed slow, as one does that the
// loss of a cable has cut off between two proofs. A node that lacks something ends it.
//
// Preconditions: the connection is locked.
func (s *setup) noLaneUp() error {
	for _, l := range s.lanes {
		if why := l.Why(); limit.IsOwn(why) {
			return fmt.Errorf("%w: %v: %v: %w", fault.ErrOwn, s.c, l, why)
		}
	}
	lacked := slices.ContainsFunc(s.lanes, func(l *lane.Lane) bool { return isNodeFault(l.Why()) })
	if s.epoch > 0 || s.c.Probe || lacked {
		return ErrNoLane
	}
	s.markAllLost()
	return nil
}

// offers returns what the peer is told: the domains and the lanes in mask.
func (s *setup) domainsAndLanes(mask uint32) (domains []handshake.Domain, lanes []handshake.Lane) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, d := range s.c.domains {
		domains = append(domains, handshake.Domain{Port: d.Port().Index(), Kind: uint8(d.Port().Kind()), RKey: d.Key()})
	}
	for _, l := range s.lanes {
		if mask&(1<<l.Index) != 0 {
			lanes = append(lanes, l.Half())
		}
	}
	return domains, lanes
}

// adopt takes over the peer's domains and memory.
func (c *Conn) setPeerDomains(base uint64, domains []handshake.Domain) error {
	if len(domains) > lane.MaxDomains {
		return fmt.Errorf("%w: %v: the peer names %d domains; at most %d are allowed", fault.ErrProtocol, c, len(domains), lane.MaxDomains)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.PeerBase = base
	c.domainsAdded = c.domainsAdded || c.peerDomains > 0 && len(domains) > c.peerDomains
	c.peerDomains = len(domains)
	for i, d := range domains {
		c.PeerKeys[i] = d.RKey
	}
	return nil
}

// placeOf is the place of a peer's port, for that kind of lanes, among its domains.
func domainIndex(domains []handshake.Domain, port, kind uint8) (int, bool) {
	for i, d := range domains {
		if d.Port == port && d.Kind == kind {
			return i, true
		}
	}
	return 0, false
}

// Announce logs the connection as NCCL's own transport would, and the lanes that
// failed it although their paths had been proved.
func (c *Conn) Announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var used []string
	for _, l := range c.lanes {
		if !l.InService() {
			f := c.failureOf(l)
			c.env.WarnOnce(fmt.Sprintf("not used: %v -> %v", f.From, f.To), "not used: "+f.String()) // numbers of queue pairs differ
			continue
		}
		used = append(used, fmt.Sprintf("%v %s", l, l.Carrier.Terms()))
		if text := l.Carrier.Remark(); text != "" {
			c.env.WarnOnce(text, text)
		}
	}
	if len(used) > 0 {
		c.env.Log.Info(fmt.Sprintf("%v: %s", c, strings.Join(used, ", ")))
	}
}

// Ran is how long this process has run while the connection was set up.
func (c *Conn) Ran() time.Duration { return c.firstSetup.clock.Ran() }
