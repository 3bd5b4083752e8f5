package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"ncclmesh/handshake"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/sock"
)

// Limits of the neighbours at the other end of one cable, of all their sessions together. Nothing limits the cables
// together, because they are no more than this node has ports: whatever comes over one of them leaves the others theirs.
const (
	maxOfCable = 64   // sessions that neighbours have dialled
	cableRate  = 1000 // frames a second that this process reads from neighbours, before TimeScale
	cableBurst = 8192 // frames that it reads from them at once, after it has read few
	frameUnit  = 512  // bytes of a message that count as a frame more
)

// cable is what the neighbours at the other end of one cable use of this process.
type cable struct {
	accepted int           // sessions that were accepted, or are being accepted; guarded by Endpoint.mu
	pace     *rate.Limiter // of the frames of every session, whichever side has dialled it
}

// cableLocked returns the cable at an interface. It makes the entry at the first call, and keeps it for good, because a
// neighbour that dials again must not begin with a new allowance.
func (e *Endpoint) cableLocked(netdev string) *cable {
	c := e.cables[netdev]
	if c == nil {
		c = &cable{pace: rate.NewLimiter(rate.Limit(cableRate/e.cfg.TimeScale), cableBurst)}
		e.cables[netdev] = c
	}
	return c
}

// takePlace reserves the place of one more session that a neighbour has dialled over the cable at netdev. It reports
// false when the cable has all its places taken. The place is given back by leavePlace.
func (e *Endpoint) takePlace(netdev string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.cableLocked(netdev)
	if c.accepted >= maxOfCable {
		return false
	}
	c.accepted++
	return true
}

func (e *Endpoint) leavePlace(netdev string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cableLocked(netdev).accepted--
}

// wait returns once a frame with a body of size bytes may be handled, or false when done is closed before. waited is
// called when the frame has to wait.
func (c *cable) wait(clock clock.Clock, size int, done <-chan struct{}, waited func()) bool {
	r := c.pace.ReserveN(time.Now(), 1+size/frameUnit)
	d := r.Delay()
	if d == 0 {
		return true
	}
	waited()
	t := clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		r.Cancel()
		return false
	}
}

// neighbourListen is the number that a neighbour's Hello has in place of a listen's; no listen has it.
const neighbourListen = 0

// DialNeighbour returns the session that this side has dialled with a process over the cable at netdev, new or old. It is
// dialled, and resumed, from that interface and at the address given only, which is the one that answered a hail there.
// Errors are as of Dial.
func (e *Endpoint) DialNeighbour(ctx context.Context, process handshake.ProcessID, secret handshake.Secret, at netip.AddrPort, netdev string) (*Session, error) {
	if netdev == "" || !at.IsValid() || at.Port() == 0 {
		return nil, fmt.Errorf("control: dialling a neighbour needs an address and an interface, not %v and %q", at, netdev)
	}
	return e.dial(ctx, &invitation{
		target: target{process, netdev}, secret: secret, listen: neighbourListen,
		addrs: []netip.AddrPort{netip.AddrPortFrom(at.Addr().Unmap(), at.Port())},
	})
}

// admitNeighbour checks the Hello of a neighbour, and returns the interface that it has come by, with a place taken there
// ([Endpoint.takePlace]). Otherwise it returns what to count, and to tell the dialler.
func (e *Endpoint) admitNeighbour(v *stranger, x *handshake.Exchange) (netdev, reason string, reject handshake.RejectCode, err error) {
	if e.cfg.NeighbourSecret == nil {
		return "", reasonNeighbour, handshake.RejectNeighbour, errors.New("this process does not relay")
	}
	if err := x.Verify(e.cfg.NeighbourSecret[:]); err != nil {
		return "", reasonKey, handshake.RejectKey, err
	}
	if netdev, err = e.cable(v.Conn); err != nil {
		return "", reasonCable, handshake.RejectNeighbour, err
	}
	if !e.takePlace(netdev) {
		return "", reasonNeighbours, 0, fmt.Errorf("neighbours have %d sessions here over %s, and may have no more", maxOfCable, netdev)
	}
	return netdev, "", 0, nil
}

// cable returns the interface that an accepted connection has come by, if neighbours may, and ties the connection to it:
// from now on the kernel takes nothing for it that came by another one, or through a router. What the dialler can say only
// after that shows that it is at the other end of the cable.
func (e *Endpoint) cable(c sock.Conn) (netdev string, err error) {
	local := c.Local().Addr()
	if netdev = local.Zone(); netdev == "" {
		netdev = sock.InterfaceOf(e.network, local)
	}
	if netdev == "" || e.cfg.Cable == nil || !e.cfg.Cable(netdev) {
		return "", fmt.Errorf("it came to %v, on interface %q, which serves no neighbours", local, netdev)
	}
	return netdev, c.Tie(netdev)
}
