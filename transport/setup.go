package transport

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"
	"sync"
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
//	Proved{lanes}                    ──►     both directions known
//	in use                           ◄──     Ready{lanes}
//
// A lane that fails on the way is left out; the connection fails when none is
// left.

// plannedLane is a candidate that a connection will try.
type plannedLane struct {
	port *port
	gid  topology.GID
	peer handshake.Port
}

// plan chooses the lanes to try towards a peer with these ports: every pair of
// ports that the best reason there is speaks for, which is a common subnet where
// any two ports have one.
func (t *Transport) plan(peer []handshake.Port) []plannedLane {
	var lanes []plannedLane
	candidates := topology.Candidates(t.topologyPorts(), peer, t.opts.GIDs)
	for _, c := range candidates {
		if c.Tier != candidates[0].Tier {
			break
		}
		for range t.opts.QPsPerLane {
			if len(lanes) < maxParts {
				lanes = append(lanes, plannedLane{t.ports[c.Local], t.ports[c.Local].GIDs[c.LocalGID], peer[c.Remote]})
			}
		}
	}
	return lanes
}

// build creates the devices and queue pairs of the planned lanes.
func (c *conn) build(plan []plannedLane) error {
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
				return fmt.Errorf("%w: %v: the offered lanes use more than %d of our ports", ErrPeer, c, maxDevices)
			}
			i = len(needs)
			index[l.port] = i
			needs = append(needs, deviceNeed{port: l.port, writes: 1})
		}
		n := &needs[i]
		n.lanes++
		if c.sending {
			n.writes = max(n.writes, mostWrites(chunkOf(l.port.attr.MaxMsgSz, l.peer.MaxMsgSize)))
		}
		kept = append(kept, l)
	}
	if err := c.setUpDevices(needs); err != nil {
		return err
	}
	for _, p := range kept {
		i := index[p.port]
		l := c.newLane(p.port, p.peer)
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
	if len(devs) == 0 || len(devs) > maxDevices {
		return fmt.Errorf("%w: %v: peer names %d devices; 1 to %d can be", ErrPeer, c, len(devs), maxDevices)
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

// connectLanes connects each lane for which the peer gave its half, in parallel,
// and returns those that reached RTS.
func (c *conn) connectLanes(devs []handshake.Device, remote []handshake.Lane) uint32 {
	var wg sync.WaitGroup
	for i := range remote {
		r := &remote[i]
		if int(r.Index) >= len(c.lanes) || r.Kind != handshake.LaneVerbs {
			continue
		}
		l := c.lanes[r.Index]
		dev, ok := deviceOf(devs, r.Port)
		if !ok || r.Port != l.peer.Index || r.PeerPort != l.port.index {
			l.reason = fmt.Sprintf("the peer's half does not fit: port %d to our port %d", r.Port, r.PeerPort)
			continue
		}
		l.remote = *r
		wg.Go(func() {
			if err := l.connect(*r, dev); err != nil {
				l.reason = err.Error()
				return
			}
			l.ready = true
		})
	}
	wg.Wait()
	var mask uint32
	for _, l := range c.lanes {
		if l.ready {
			mask |= 1 << l.index
			c.checkMTU(l)
		}
	}
	return mask
}

// checkMTU says when a cable works at less than one of its ends could.
func (c *conn) checkMTU(l *lane) {
	p := l.port
	if ours, theirs := p.attr.ActiveMTU, uint32(l.remote.MTU); ours != theirs {
		c.t.warnOnce(fmt.Sprintf("MTU differs between the ends of a cable: %s on %s has %d, %s (%s) on %s has %d; using %d. Set the same MTU on both interfaces",
			p.String(), c.t.name(), mtuBytes(ours), shortName(l.peer), l.peer.Netdev, c.s.Peer().Hostname, mtuBytes(theirs), mtuBytes(min(ours, theirs))))
	}
}

// prove sends this side's proof over the lanes in mask and waits until, for each,
// it is acknowledged and the peer's has landed, or the deadline has passed. It
// returns the lanes proved.
func (c *conn) prove(ctx context.Context, mask uint32) (proved uint32) {
	pending := mask
	c.mu.Lock()
	for _, l := range c.lanes {
		if bit := uint32(1) << l.index; mask&bit != 0 {
			if err := l.postProof(); err != nil {
				l.reason = err.Error()
				pending &^= bit
			}
		}
	}
	c.mu.Unlock()
	limit := c.t.opts.scaled(c.t.opts.ProofWait)
	deadline := time.Now().Add(limit)
	for wait := 20 * time.Microsecond; ; wait = min(2*wait, 2*time.Millisecond) {
		c.mu.Lock()
		for _, l := range c.lanes {
			bit := uint32(1) << l.index
			if pending&bit == 0 {
				continue
			}
			ok, err := l.proved()
			switch {
			case err != nil:
				l.reason = err.Error()
				pending &^= bit
			case ok:
				proved |= bit
				pending &^= bit
			}
		}
		over := c.err != nil || ctx.Err() != nil
		c.mu.Unlock()
		if pending == 0 || over {
			return proved
		}
		if time.Now().After(deadline) {
			for _, l := range c.lanes {
				if pending&(1<<l.index) != 0 {
					l.reason = fmt.Sprintf("no packet passed within %v", limit)
				}
			}
			return proved
		}
		time.Sleep(wait)
	}
}

// wait returns the peer's next set-up message.
func (c *conn) wait(ctx context.Context) (handshake.Message, error) {
	select {
	case m := <-c.inbox:
		return m, nil
	case <-c.bye:
		c.mu.Lock()
		defer c.mu.Unlock()
		return nil, c.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %v: given up during set-up", ErrUsage, c)
	}
}

// expect returns the peer's next message, which must be an M.
func expect[M handshake.Message](ctx context.Context, c *conn) (M, error) {
	var none M
	m, err := c.wait(ctx)
	if err != nil {
		return none, err
	}
	if m, ok := m.(M); ok {
		return m, nil
	}
	return none, fmt.Errorf("%w: %v: %v instead of %v", ErrPeer, c, m.Type(), none.Type())
}

// use puts the lanes in mask into service and gives back the others.
func (c *conn) use(mask uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lanes {
		if mask&(1<<l.index) != 0 {
			l.up = true
		} else if err := l.close(); err != nil {
			c.t.log.Debug("an unused lane did not close", "lane", l.String(), "err", err)
		}
	}
}

// announce logs the connection as NCCL's own transport would, and each lane that
// was tried and is not used.
func (c *conn) announce(mask uint32) {
	var used []string
	for _, l := range c.lanes {
		if mask&(1<<l.index) != 0 {
			used = append(used, fmt.Sprintf("%v %s", l, l.terms()))
		} else {
			c.t.warnOnce(fmt.Sprintf("%s -> %s: %s -> %s is not used: %s", c.t.name(), c.s.Peer().Hostname,
				l.port.short(), shortName(l.peer), l.reason))
		}
	}
	c.t.log.Info(fmt.Sprintf("%v: %s", c, strings.Join(used, ", ")))
}

// noPath is the error of a connection none of whose lanes works.
func (c *conn) noPath() error {
	var b strings.Builder
	fmt.Fprintf(&b, "no path between %s and %s", c.t.name(), c.s.Peer().Hostname)
	if len(c.lanes) == 0 {
		fmt.Fprintf(&b, ": no two of their ports share a subnet: %s. Cable the two nodes, or give both ends of a cable addresses in one subnet",
			topology.Explain(c.t.topologyPorts(), c.s.Peer().Ports, c.t.opts.GIDs))
	}
	for _, l := range c.lanes {
		own := l.halfOffer()
		fmt.Fprintf(&b, "; %s %s -> %s %s: %s", l.port.String(), netip.AddrFrom16(own.GID).Unmap(),
			shortName(l.peer), netip.AddrFrom16(l.remote.GID).Unmap(), l.reason)
	}
	return fmt.Errorf("%w: %v: %s", ErrPeer, c, b.String())
}

// abort ends a connection that did not come up.
func (c *conn) abort(err error) error {
	c.fail(err)
	return errors.Join(err, c.destroy())
}

// lanesOf counts the lanes of a mask.
func lanesOf(mask uint32) int { return bits.OnesCount32(mask) }
