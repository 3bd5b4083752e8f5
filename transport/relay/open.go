package relay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/time/rate"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/stage"
)

// Reasons for refusing a circuit, as they are counted and logged.
const (
	reasonOff     = "relaying is off"
	reasonSelf    = "the relay named is another process"
	reasonLoop    = "the route leads back to the node that asked"
	reasonPort    = "no such port here"
	reasonKind    = "circuits of that kind are not supported here"
	reasonSession = "too many circuits for one neighbour"
	reasonCable   = "too many circuits from one cable"
	reasonFull    = "too many circuits in all"
	reasonPace    = "too many circuits asked for over one cable in too short a time"
	reasonTwice   = "the circuit's number is in use"
	reasonToken   = "no such circuit is expected here"
	reasonLate    = "the lane that it was for has been given up"
	reasonClosed  = "the process ends"
)

// circuit is a circuit that this process relays for other nodes.
type circuit struct {
	key
	r      *Relay
	cable  cable // that the request arrived on
	ask    *handshake.CircuitOpen
	ctx    context.Context // of the set-up
	cancel context.CancelFunc

	// guarded by Relay.mu
	life      stage.Stage[CircuitState]
	settingUp bool // the set-up is running
	next      *hop
	relayed   Relayed
}

// open starts the circuit that a peer requests, or refuses it.
func (r *Relay) open(s session, m *handshake.CircuitOpen) {
	reason, err := r.check(s, m)
	if reason != "" {
		r.refuse(s, m.Circuit, reason, err)
		return
	}
	c := &circuit{key: key{s, m.Circuit}, r: r, cable: cableOf(s, m), ask: m, settingUp: true}
	c.ctx, c.cancel = r.cfg.Clock.WithTimeout(r.setUpCtx, r.cfg.Clock.Scaled(setUpWait))
	if reason := r.admit(c); reason != "" {
		c.cancel()
		if reason == reasonTwice { // the peer has used a number twice, so that a CircuitClose would be ambiguous
			r.mu.Lock()
			first := r.inbound[c.key]
			r.mu.Unlock()
			if first != nil {
				first.end(errors.New(reason), false)
			}
			r.count(reason)
			return
		}
		r.refuse(s, m.Circuit, reason, nil)
		return
	}
	setUp := func() {
		defer c.setUpDone()
		if err := c.setUp(); err != nil {
			c.end(r.cause(err), false)
		}
	}
	if !r.spawn(setUp, func(p *guard.Panic) { c.end(p, false) }) {
		c.end(errClosed, false)
		c.setUpDone()
	}
}

// check returns the reason for refusing a request, except for the number of circuits.
func (r *Relay) check(s session, m *handshake.CircuitOpen) (reason string, err error) {
	self, rest := m.Route[0], m.Route[1:]
	from := s.Peer()
	back := m.Final.Node == from.Node
	for _, h := range rest {
		back = back || h.Node == from.Node
	}
	if r.cfg.Refuse != nil {
		err = r.cfg.Refuse()
	}
	switch {
	case err != nil:
		return reasonOff, err
	case self.Process != r.cfg.Process || self.Node != r.cfg.Node:
		return reasonSelf, fmt.Errorf("it asks process %.8v, this is %.8v", self.Process, r.cfg.Process)
	case back || from.Process == r.cfg.Process:
		return reasonLoop, nil
	case r.makers[m.Kind] == nil:
		return reasonKind, fmt.Errorf("it wants a %v on each hop", lane.Kind(m.Kind))
	}
	for _, p := range []*uint8{&m.Route[0].In, &m.Route[0].Out} {
		i := lane.PortAt(r.cfg.Ports, *p, lane.Kind(m.Kind))
		if i < 0 {
			return reasonPort, fmt.Errorf("port %d for a %v", *p, lane.Kind(m.Kind))
		}
		*p = uint8(i)
	}
	return "", nil
}

// admit reserves a slot for a circuit, or returns the reason why there is none.
func (r *Relay) admit(c *circuit) (reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := 0
	for _, n := range r.slots {
		all += n
	}
	switch {
	case r.closed:
		return reasonClosed
	case r.inbound[c.key] != nil:
		return reasonTwice
	case r.slots[c.s] >= maxOfSession:
		return reasonSession
	case r.cables[c.cable] >= maxOfCable:
		return reasonCable
	case all >= maxCircuits:
		return reasonFull
	}
	if all == 0 {
		clear(r.askers)
	}
	r.inbound[c.key] = c
	r.slots[c.s]++
	r.cables[c.cable]++
	return ""
}

// refuse sends a refusal, counts it, and logs the first one of each reason.
func (r *Relay) refuse(s session, circuit uint32, reason string, err error) {
	why := errors.New(reason)
	if err != nil {
		why = fmt.Errorf("%s: %w", reason, err)
	}
	if r.count(reason) {
		r.log.Warn(fmt.Sprintf("a circuit that %s asked for was refused: %v; more of this kind are only counted", s.Name(), why))
	}
	decline(s, circuit, why)
}

// decline sends a CircuitClose to the side that requested a circuit, because it cannot be made or has ended.
func decline(s session, circuit uint32, why error) {
	_ = s.Send(&handshake.CircuitClose{Circuit: circuit, Reason: reasonOf(s.LocalName(), why)}) // the error means that the session has ended
}

// count counts a refusal, and reports whether it is the first with that reason.
func (r *Relay) count(reason string) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stats.Refused == nil {
		r.stats.Refused = map[string]uint64{}
	}
	r.stats.Refused[reason]++
	return r.stats.Refused[reason] == 1
}

// cable identifies the cable that requests arrive on: the interface of a neighbour's session or, for a session that was
// dialled by a handle, the port in the request. For a neighbour's session the port in the request is ignored, because
// the neighbour could name the port of another cable.
type cable struct {
	netdev string
	port   uint8 // used if netdev is ""
}

func cableOf(s session, m *handshake.CircuitOpen) cable {
	if netdev := s.Cable(); netdev != "" {
		return cable{netdev: netdev}
	}
	return cable{port: m.Route[0].In}
}

// pace returns the rate limiter of the circuits that are requested over a cable. It is never deleted, because there are
// at most as many as ports.
func (r *Relay) pace(in cable) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.paces[in]
	if l == nil {
		l = rate.NewLimiter(rate.Limit(setUpRate/r.cfg.Clock.Scale()), setUpBurst)
		r.paces[in] = l
	}
	return l
}

// setUp makes the circuit, from here to its receiver, and replies to the side that requested it.
func (c *circuit) setUp() error {
	if err := c.r.pace(c.cable).Wait(c.ctx); errors.Is(err, context.Canceled) {
		return err
	} else if err != nil {
		c.r.count(reasonPace)
		return errors.New(reasonPace)
	}
	next, j, err := c.hopPair()
	if err != nil {
		return err
	}
	relayed, err := c.r.makers[c.ask.Kind].Begin(c.ask, j)
	if err != nil {
		return err
	}
	if !c.setRelayed(relayed) {
		relayed.Drop(errors.New("it was dropped while it was made"))
		return nil
	}
	answer, err := next.request(c.ctx, c.nextRequest(next, relayed.Next()))
	if err != nil {
		return err
	}
	if err := relayed.Connect(c.ctx, answer); err != nil {
		return err
	}
	p := relayed.Prev()
	p.Half.Kind, p.Half.Port, p.Half.PeerPort = c.ask.Kind, c.ask.Route[0].In, c.ask.Half.Port
	if c.markUp() {
		c.r.log.Debug("a circuit is relayed", "for", c.s.Name(), "circuit", c.n, "from", j.In.Port.Now().Netdev, "to", j.Out.Port.Now().Netdev)
		err = c.s.Send(&handshake.CircuitOpened{Circuit: c.n, Room: p.Room, Half: p.Half, Write: p.Write})
	}
	return err
}

// hopPair returns the description of the circuit's two hops at this relay, and the hop to the next process, which gets
// its number here.
func (c *circuit) hopPair() (next *hop, j HopPair, err error) {
	r, self, final := c.r, c.ask.Route[0], &c.ask.Final
	j = HopPair{Last: len(c.ask.Route) == 1, Ended: c.ended, Moved: r.moved}
	j.In = Leg{Port: r.cfg.Ports[self.In], Peer: c.ask.Half.Port, Name: c.s.Name(), Hop: c.name(), Key: c.s.HopKey()}
	if j.In.From, j.In.To, err = r.hopAddrs(self.In, r.peerPort(c.s, c.ask.Half.Port), c.ask.Half.Addr); err != nil {
		return nil, j, err
	}
	j.Out = Leg{Port: r.cfg.Ports[self.Out], Peer: final.Port}
	process := final.Process
	if !j.Last {
		process, j.Out.Peer = c.ask.Route[1].Process, c.ask.Route[1].In
	}
	s, err := r.neighbour(c.ctx, process, self.Out)
	if err != nil {
		return nil, j, err
	}
	if next, err = c.newNextHop(s); err != nil {
		return nil, j, err
	}
	j.Out.Name, j.Out.Hop, j.Out.Key = s.Name(), next.name(), s.HopKey()
	j.Out.Told = r.peerPort(s, j.Out.Peer)
	j.Out.From, j.Out.To, err = r.hopAddrs(self.Out, j.Out.Told, netip.Addr{})
	return next, j, err
}

// nextRequest returns the message that requests the circuit from the next process.
func (c *circuit) nextRequest(next *hop, o Offer) handshake.Message {
	o.Half.Kind, o.Half.Port = c.ask.Kind, c.ask.Route[0].Out
	if len(c.ask.Route) == 1 {
		o.Half.PeerPort = c.ask.Final.Port
		return &handshake.CircuitDeliver{Circuit: next.n, Token: c.ask.Final.Token, Half: o.Half, Read: o.Read, Write: o.Write}
	}
	o.Half.PeerPort = c.ask.Route[1].In
	return &handshake.CircuitOpen{
		Circuit: next.n, Kind: c.ask.Kind, Room: o.Room, Half: o.Half, Back: o.Write,
		Route: c.ask.Route[1:], Final: c.ask.Final,
	}
}

// newNextHop makes the hop to the next process, unless the circuit is over.
func (c *circuit) newNextHop(s session) (*hop, error) {
	var silent func(error)
	if len(c.ask.Route) > 1 { // a receiver is not checked here, because it may only be slow; the sender decides
		silent = c.forwardStalled
	}
	h, err := c.r.newHop(s, func(why error) { c.end(why, false) }, silent)
	if err != nil {
		return nil, err
	}
	c.r.mu.Lock()
	over := c.life.At().over()
	if !over {
		c.next = h
	}
	c.r.mu.Unlock()
	if over {
		h.drop("")
		return nil, context.Canceled
	}
	return h, nil
}

// setRelayed stores the circuit's forwarding part, unless the circuit is over.
func (c *circuit) setRelayed(j Relayed) bool {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	over := c.life.At().over()
	if !over {
		c.relayed = j
	}
	return !over
}

// markUp records that the circuit is up, unless it is over.
func (c *circuit) markUp() bool {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if !c.life.Enter(Forwarding) {
		return false
	}
	c.r.cfg.Counts.Carried.Add(1)
	c.r.cfg.Counts.Circuits.Add(1)
	if len(c.r.askers) < maxAskers {
		c.r.askers[c.s.Name()] = true
	}
	c.r.cfg.Changed()
	return true
}

// ended handles the end of the circuit that its forwarding part reports.
func (c *circuit) ended(why error) {
	if why == nil {
		why = errFinished
	}
	c.end(why, false)
}

// errFinished is the reason if a circuit ends after both ends have closed it.
var errFinished = errors.New("both ends have closed the circuit")

// end ends the circuit and releases its resources. It notifies the next process and, unless fromPeer is true, the
// previous one.
func (c *circuit) end(why error, fromPeer bool) {
	c.r.mu.Lock()
	to := Ended
	switch at := c.life.At(); {
	case at.over():
		c.r.mu.Unlock()
		return
	case at == Making:
		to = Failed
	}
	c.life.Enter(to)
	if c.r.inbound[c.key] == c {
		delete(c.r.inbound, c.key)
	}
	if to == Failed {
		c.r.cfg.Counts.Failed.Add(1)
	}
	next, relayed := c.next, c.relayed
	c.freeLocked()
	c.r.mu.Unlock()
	reason := reasonOf(c.s.LocalName(), why)
	if !fromPeer {
		_ = c.s.Send(&handshake.CircuitClose{Circuit: c.n, Reason: reason}) // the error means that the session has ended
	}
	if next != nil {
		next.drop(reason)
	}
	if relayed != nil {
		relayed.Drop(why)
	}
	c.cancel()
	c.r.log.Debug("a relayed circuit has ended", "for", c.s.Name(), "circuit", c.n, "why", reason)
}

// setUpDone records that the set-up has returned.
func (c *circuit) setUpDone() {
	c.cancel()
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.settingUp = false
	c.freeLocked()
}

// freeLocked releases the slot once the circuit is over and its set-up has returned. It needs Relay.mu.
func (c *circuit) freeLocked() {
	if !c.life.At().over() || c.settingUp {
		return
	}
	if c.life.At() == Ended {
		c.r.cfg.Counts.Circuits.Add(^uint64(0))
	}
	if c.r.slots[c.s]--; c.r.slots[c.s] <= 0 {
		delete(c.r.slots, c.s)
	}
	if c.r.cables[c.cable]--; c.r.cables[c.cable] == 0 {
		delete(c.r.cables, c.cable)
	}
	c.r.cfg.Changed()
}

// moved counts forwarded bytes.
func (r *Relay) moved(forth, back uint64) {
	r.cfg.Counts.Forth.Add(forth)
	r.cfg.Counts.Back.Add(back)
}
