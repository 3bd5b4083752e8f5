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

// ErrNoLane is the error of a probe, or of lanes that were to join a connection, if no lane was validated. It
// is also the error of a connection's first set-up if no lane was validated because a node lacked a resource.
var ErrNoLane = errors.New("no lane works")

// setup brings lanes of a connection into service: the first ones, or lanes that join later.
type setup struct {
	c        *Conn
	epoch    uint32                 // of the lanes; 0 for the first set-up
	lanes    []*lane.Lane           // being set up
	inbox    chan handshake.Message // messages of the peer for this set-up
	finished atomic.Bool            // the lanes are in service: a lane that fails now is drained

	// To tell a process that does not run from a path that does not work.
	clock              clock.Watch
	longestSilence     time.Duration // longest time for which the peer has not answered on the session
	livenessProbed     bool          // the peer was asked for an answer during this validation; see overdue
	onlyKernelAnswered bool          // the peer's adapter or kernel answered on a lane, and its process did not
}

// newSetup returns a set-up without lanes.
func newSetup(c *Conn, epoch uint32) *setup {
	return &setup{
		c: c, epoch: epoch, inbox: make(chan handshake.Message, 4+lane.MaxParts),
		clock: clock.Watch{Most: c.env.Clock.Scaled(2 * clock.LookEvery)},
	}
}

// firstLaneTimeout returns how long the set-up waits for its first lane. The paths of lanes that join were
// validated just before, so that they get no more time than that validation.
func (s *setup) firstLaneTimeout() time.Duration {
	switch {
	case s.epoch == 0:
		return s.c.env.Clock.Scaled(s.c.env.LaneWait)
	case slices.ContainsFunc(s.lanes, func(l *lane.Lane) bool { return l.Route != nil }):
		return relayedTimeouts * s.c.env.Clock.Scaled(s.c.env.ProofWait)
	}
	return s.c.env.Clock.Scaled(s.c.env.ProofWait)
}

// lane returns the lane of that index which is being set up, or nil.
func (s *setup) lane(index uint8) *lane.Lane {
	for _, l := range s.lanes {
		if l.Index == index {
			return l
		}
	}
	return nil
}

// laneMask returns a mask of the lanes that are being set up.
func (s *setup) laneMask() (mask uint32) {
	for _, l := range s.lanes {
		mask |= 1 << l.Index
	}
	return mask
}

// Establish sets up the lanes of plan from the sender's side. open is the message to the peer; Establish adds
// the lanes to it. It returns a mask of the lanes in service. If there are none, each lane has its reason.
// The error is then ErrNoLane for a probe, or if a node lacked a resource; otherwise it is nil, and the
// connection waits for another path.
func (c *Conn) Establish(ctx context.Context, plan []lane.Spec, open *handshake.Open) (uint32, error) {
	s := c.firstSetup
	if ctx.Err() != nil { // the connection may be closing
		return 0, c.abandoned()
	}
	if err := c.env.LanePool.Do(func() error { return s.build(plan) }); err != nil {
		return 0, err
	}
	return s.offer(ctx, open)
}

// Answer sets up the lanes that a sender's Open offers, from the receiver's side. plan has this side's end of
// each lane in m. It returns what Establish returns.
func (c *Conn) Answer(ctx context.Context, plan []lane.Spec, m *handshake.Open) (uint32, error) {
	s := c.firstSetup
	if ctx.Err() != nil { // the connection may be closing
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

// offer brings lanes that have been made into service, from the sender's side.
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
	validated, _, err := s.validate(ctx, connected)
	if err != nil {
		return 0, err
	}
	if err := s.c.send(s.validatedMessage(validated)); err != nil {
		return 0, err
	}
	peerResult, err := expect[*handshake.Validated](ctx, s)
	if err != nil {
		return 0, err
	}
	return s.putInService(validated, peerResult)
}

// answer brings lanes that have been made into service, from the receiver's side.
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
	validated, peerResult, err := s.validate(ctx, connected&reached.Lanes)
	if err != nil {
		return 0, err
	}
	return s.putInService(validated, peerResult)
}

// send sends the peer a message. It returns an error if the session does not take it.
func (c *Conn) send(m handshake.Message) error {
	if err := c.Session.Send(m); err != nil {
		return fmt.Errorf("%w: %v: %w", c.sendErrorKind(), c, err)
	}
	return nil
}

// sendErrorKind returns the kind of error that a failed send is. If the session is dead the peer is gone; a
// live session takes every message that is correct.
func (c *Conn) sendErrorKind() error {
	if c.Session.Alive() {
		return fault.ErrInternal
	}
	return fault.ErrPeerGone
}

// validatedMessage returns the message which tells the peer which lanes this side has validated, and why the
// others failed.
func (s *setup) validatedMessage(validated uint32) *handshake.Validated {
	m := &handshake.Validated{Conn: s.c.ID, Epoch: s.epoch, Lanes: validated}
	for _, l := range s.lanes {
		if validated&(1<<l.Index) == 0 && l.Why() != nil {
			f, why := handshake.LaneFailure{Index: l.Index}, l.Why()
			var node *lane.NodeFault
			if errors.As(why, &node) {
				f.Cause, why = handshake.CauseNode, node.Err
			}
			f.Reason = reason(why)
			m.Failed = append(m.Failed, f)
		}
	}
	return m
}

// putInService puts the lanes that both sides have validated into service, and closes the others. It returns
// a mask of the lanes in service.
//
// A receiver does so before it tells the sender, because the sender's first write may come at once. It tells
// the sender before the connection is unlocked, because a LaneDown for one of the lanes must not reach the
// sender first: the sender would take it for a lane that never came into service.
func (s *setup) putInService(validated uint32, peerResult *handshake.Validated) (uint32, error) {
	mask := validated & peerResult.Lanes
	for _, f := range peerResult.Failed {
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
		if err := s.c.guarded("close a lane", l.Carrier.Close); err != nil {
			s.c.env.Log.Debug("an unused lane did not close", "lane", l.String(), "err", err)
			continue
		}
		l.Enter(lane.Stopped)
	}
	s.installLanes()
	var err error
	if !s.c.Sending {
		err = s.c.send(s.validatedMessage(validated & mask))
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

// noLaneUp decides what follows if no lane can be put into service. If the connection's first lanes all fail,
// their paths worked a moment before, when a probe validated them: the connection has lost them and waits for
// a path like any other that has lost its lanes. That also holds if a process seemed slow, because a process
// looks slow when a cable fails between two packets. A lack of a resource ends the connection. noLaneUp
// returns nil if the connection waits.
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

// domainsAndLanes returns what the peer needs to connect the lanes in mask: all domains, and this side's end
// of each lane.
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

// setPeerDomains stores the address of the peer's ring and the keys of its domains.
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

// domainIndex returns the index of the domain of a peer's port and kind of lane among its domains, and
// whether there is one.
func domainIndex(domains []handshake.Domain, port, kind uint8) (int, bool) {
	for i, d := range domains {
		if d.Port == port && d.Kind == kind {
			return i, true
		}
	}
	return 0, false
}

// Announce logs the lanes of the connection in the form of NCCL's own transport, and warns of lanes that
// failed although their paths had been validated.
func (c *Conn) Announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var used []string
	for _, l := range c.lanes {
		if !l.InService() {
			f := c.failureOf(l)
			c.env.WarnOnce(fmt.Sprintf("not used: %v -> %v", f.From, f.To), "not used: "+f.String()) // the subject leaves out the numbers of queue pairs, which differ between connections
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

// Ran returns for how long this process has run during the first set-up of the connection.
func (c *Conn) Ran() time.Duration { return c.firstSetup.clock.Ran() }
