package transport

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/topology"
)

// The set-up of a connection:
//
//	sender                                   receiver
//	queue pairs in INIT
//	Open{lanes}                      ──►     queue pairs in INIT, receives posted, RTR, RTS
//	RTR, RTS                         ◄──     Accept{lanes}
//	Connected{lanes}, proof writes   ──►     proof writes
//	                               ◄─ ─►     LaneDown{lane} of those that fail
//	Proved{lanes}                    ──►
//	in use                           ◄──     in use, Proved{lanes}
//
// A lane that fails on the way is left out; those that both sides have proved
// are used.

// errNoLane is the end of a set-up in which no lane proved itself.
var errNoLane = errors.New("no lane works")

// plannedLane is a lane that a connection will try.
type plannedLane struct {
	port   *port
	gid    topology.GID
	peer   handshake.Port
	to     [16]byte // the peer's GID
	weight float64  // its share of the traffic, in Mb/s; 0 is what its ports can do
}

// establish sets the lanes of plan up from the sender's side. open is what the
// peer is told, but for the lanes. It returns the lanes in service; when there
// are none the error is errNoLane and each lane has its reason.
func (c *conn) establish(ctx context.Context, plan []plannedLane, open *handshake.Open) (uint32, error) {
	if err := c.t.making.do(func() error { return c.build(plan) }); err != nil {
		return 0, err
	}
	open.Base = uint64(c.wireBase)
	open.Devices, open.Lanes = c.offers(1<<len(c.lanes) - 1)
	if err := c.send(open); err != nil {
		return 0, err
	}
	acc, err := expect[*handshake.Accept](ctx, c)
	if err != nil {
		return 0, err
	}
	if err := c.adopt(acc.Base, acc.Devices); err != nil {
		return 0, err
	}
	connected := c.connectLanes(ctx, acc.Devices, acc.Lanes)
	if err := c.send(&handshake.Connected{Conn: c.id, Lanes: connected}); err != nil {
		return 0, err
	}
	proved, _, err := c.prove(ctx, connected)
	if err != nil {
		return 0, err
	}
	if err := c.send(c.verdict(proved)); err != nil {
		return 0, err
	}
	theirs, err := expect[*handshake.Proved](ctx, c)
	if err != nil {
		return 0, err
	}
	return c.agree(proved, theirs)
}

// answer sets up from the receiver's side what the sender has opened.
func (c *conn) answer(ctx context.Context, m *handshake.Open) (uint32, error) {
	if err := c.adopt(m.Base, m.Devices); err != nil {
		return 0, err
	}
	plan, err := c.planFor(m.Lanes)
	if err != nil {
		return 0, err
	}
	if err := c.t.making.do(func() error { return c.build(plan) }); err != nil {
		return 0, err
	}
	connected := c.connectLanes(ctx, m.Devices, m.Lanes)
	acc := &handshake.Accept{Conn: c.id, Base: uint64(c.wireBase)}
	acc.Devices, acc.Lanes = c.offers(connected)
	if err := c.send(acc); err != nil {
		return 0, err
	}
	reached, err := expect[*handshake.Connected](ctx, c)
	if err != nil {
		return 0, err
	}
	proved, theirs, err := c.prove(ctx, connected&reached.Lanes)
	if err != nil {
		return 0, err
	}
	// In service before the sender hears of it: its first write may come at once.
	mask, agreed := c.agree(proved, theirs)
	if err := c.send(c.verdict(proved)); err != nil {
		return 0, err
	}
	return mask, agreed
}

// send gives the peer a set-up message.
func (c *conn) send(m handshake.Message) error {
	if err := c.s.Send(m); err != nil {
		return fmt.Errorf("%w: %v: %w", c.unsent(), c, err)
	}
	return nil
}

// unsent is the kind of a message's failure: only a live session may be to blame
// for it.
func (c *conn) unsent() error {
	if c.s.Alive() {
		return ErrInternal
	}
	return ErrPeerGone
}

// verdict is what this side tells of its proofs.
func (c *conn) verdict(proved uint32) *handshake.Proved {
	m := &handshake.Proved{Conn: c.id, Lanes: proved}
	for _, l := range c.lanes {
		if proved&(1<<l.index) == 0 && l.reason != "" {
			f := handshake.LaneFailure{Index: l.index, Reason: clip(l.reason, handshake.MaxReason-4)}
			if l.lack != "" {
				f.Cause = handshake.CauseNode
			}
			m.Failed = append(m.Failed, f)
		}
	}
	return m
}

// agree puts the lanes into service that both sides have proved, and gives the
// others back.
func (c *conn) agree(proved uint32, theirs *handshake.Proved) (uint32, error) {
	mask := proved & theirs.Lanes
	for _, f := range theirs.Failed {
		if int(f.Index) < len(c.lanes) {
			c.lanes[f.Index].failedThere(c.s.Name()+": "+f.Reason, f.Cause)
		}
	}
	c.mu.Lock()
	for _, l := range c.lanes {
		if mask&(1<<l.index) != 0 {
			l.up = true
			continue
		}
		if l.reason == "" {
			l.reason = c.s.Name() + " could not connect its half"
		}
		if err := c.t.guarded("close", l.close); err != nil {
			c.t.log.Debug("an unused lane did not close", "lane", l.String(), "err", err)
		}
	}
	c.mu.Unlock()
	if mask == 0 {
		return 0, c.noneWorks()
	}
	for _, l := range c.lanes {
		if l.up && !l.port.plain() {
			c.checkMTU(l)
		}
	}
	return mask, nil
}

// failedThere notes why the lane has failed at the peer. What the peer lacked
// explains what has been seen here.
func (l *lane) failedThere(reason string, cause handshake.Cause) {
	switch {
	case l.lack != "":
	case cause == handshake.CauseNode:
		l.lack, l.reason = reason, reason
	case l.reason == "":
		l.reason = reason
	}
}

// build creates the devices and queue pairs of the planned lanes, or their
// sockets.
func (c *conn) build(plan []plannedLane) error {
	if plan[0].port.plain() {
		return c.buildSockets(plan)
	}
	var needs []deviceNeed
	index := map[*port]int{}
	kept := plan[:0:0]
	for _, l := range plan {
		i, ok := index[l.port]
		if !ok {
			if len(needs) == maxDevices {
				if c.sending {
					continue // the device set is full
				}
				return fmt.Errorf("%w: %v: the offered lanes use more than %d of our ports", ErrProtocol, c, maxDevices)
			}
			i = len(needs)
			index[l.port] = i
			needs = append(needs, deviceNeed{port: l.port, writes: 1})
		}
		n := &needs[i]
		n.lanes++
		if c.sending && !c.trial {
			n.writes = max(n.writes, mostWrites(chunkOf(l.port.now().attr.MaxMsgSz, l.peer.MaxMsgSize)))
		}
		kept = append(kept, l)
	}
	if err := c.setUpDevices(needs); err != nil {
		return err
	}
	for _, p := range kept {
		i := index[p.port]
		l := c.newLane(p)
		q, err := newQueuePair(l, i, p.gid, needs[i].writes)
		if err != nil {
			return fmt.Errorf("%v: %s: %w", c, p.port.String(), err)
		}
		l.carrier = q
		c.mu.Lock()
		c.lanes = append(c.lanes, l)
		for _, d := range c.devs {
			d.qps = append(d.qps, nil)
		}
		c.devs[i].qps[l.index] = q
		c.mu.Unlock()
	}
	return nil
}

// offers returns what the peer is told: the device set and the lanes in mask.
func (c *conn) offers(mask uint32) (devs []handshake.Device, lanes []handshake.Lane) {
	for _, d := range c.devs {
		devs = append(devs, handshake.Device{Port: d.port.index, RKey: d.wire.RKey()})
	}
	for _, l := range c.lanes {
		if mask&(1<<l.index) != 0 {
			lanes = append(lanes, l.halfOffer())
		}
	}
	return devs, lanes
}

// adopt takes over the peer's device set and memory.
func (c *conn) adopt(base uint64, devs []handshake.Device) error {
	if len(devs) > maxDevices {
		return fmt.Errorf("%w: %v: peer names %d devices; %d can be", ErrProtocol, c, len(devs), maxDevices)
	}
	c.peerBase = base
	for i, d := range devs {
		c.peerKeys[i] = d.RKey
	}
	return nil
}

// deviceOf is the place of a peer's port in its device set.
func deviceOf(devs []handshake.Device, port uint8) (int, bool) {
	for i, d := range devs {
		if d.Port == port {
			return i, true
		}
	}
	return 0, false
}

// checkMTU says when a cable, which a proof has found there, works at less than one
// of its ends could.
func (c *conn) checkMTU(l *lane) {
	p := l.port.now()
	if ours, theirs := p.attr.ActiveMTU, uint32(l.remote.MTU); ours != theirs {
		peer := topology.Port{Device: l.peer.Device, Num: l.peer.Num, Netdev: l.peer.Netdev}
		c.t.warnOnce(fmt.Sprintf("MTU differs between the ends of a cable: %s on %s has %d, %s on %s has %d; using %d. Set the same MTU at both ends",
			p.String(), c.s.LocalName(), mtuBytes(ours), peer.String(), c.s.Name(), mtuBytes(theirs), mtuBytes(min(ours, theirs))))
	}
}

// expect returns the peer's next message, which must be an M. What the peer says
// of a lane's failure may come before it.
func expect[M handshake.Message](ctx context.Context, c *conn) (M, error) {
	var none M
	c.clock.start()
	for {
		m, err := c.next(ctx)
		if err != nil {
			return none, err
		}
		if down, ok := m.(*handshake.LaneDown); ok {
			c.laneDown(down)
			continue
		}
		if m, ok := m.(M); ok {
			return m, nil
		}
		return none, c.outOfPlace(m, none.Type())
	}
}

// next returns the peer's next set-up message. What it said before its end counts.
func (c *conn) next(ctx context.Context) (handshake.Message, error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case m := <-c.inbox:
			return m, nil
		default:
		}
		if err := c.ended(); err != nil {
			return nil, err
		}
		select {
		case m := <-c.inbox:
			return m, nil
		case <-tick.C:
			c.look()
		case <-c.bye:
		case <-ctx.Done():
			return nil, c.abandoned()
		}
	}
}

// outOfPlace is the error of a message that the protocol does not have there.
func (c *conn) outOfPlace(m handshake.Message, want handshake.Type) error {
	return fmt.Errorf("%w: %v: %v instead of %v", ErrProtocol, c, m.Type(), want)
}

func (c *conn) abandoned() error {
	return fmt.Errorf("%w: %v: given up during set-up", ErrUsage, c)
}

// announce logs the connection as NCCL's own transport would, and the lanes that
// failed it although their paths had been proved.
func (c *conn) announce(mask uint32) {
	var used []string
	for _, l := range c.lanes {
		if mask&(1<<l.index) != 0 {
			used = append(used, fmt.Sprintf("%v %s", l, l.terms()))
		} else {
			c.t.warnOnce("not used: " + c.describeTried(l))
		}
	}
	if len(c.sockets) > 0 && !offer(c.t.portsOf(c.s), handshake.LaneVerbs) { // else it is the sender who knows why
		c.t.sayWhyTCP(c.s, nil, nil)
	}
	c.t.log.Info(fmt.Sprintf("%v: %s", c, strings.Join(used, ", ")))
}

// describeTried says of a lane that failed what it was and why it did.
func (c *conn) describeTried(l *lane) string {
	return fmt.Sprintf("%s %s on %s -> %s %s on %s: %s", l.port.String(), addrOf(l.halfOffer().GID), c.s.LocalName(),
		shortName(l.peer), addrOf(l.remote.GID), c.s.Name(), l.reason)
}

// addrOf is the address of a GID as people know it.
func addrOf(gid [16]byte) netip.Addr { return netip.AddrFrom16(gid).Unmap() }

// noLane is the error of a connection none of whose lanes worked.
func (c *conn) noLane() error {
	var tried []string
	for _, l := range c.lanes {
		tried = append(tried, c.describeTried(l))
	}
	return fmt.Errorf("%v: %w", c, c.t.noPath(c.s, tried, c.slowness()))
}

// abort ends a connection that did not come up.
func (c *conn) abort(err error) error {
	c.fail(err)
	return errors.Join(err, c.t.making.do(c.destroy))
}
