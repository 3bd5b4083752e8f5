package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"ncclmesh/handshake"
	"ncclmesh/transport/accept"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/sock"
)

// Limits of all sessions of the neighbours at the other end of one cable. There is no limit over all cables, because a
// node has few ports, and so the neighbours of one cable do not use up what is left for another.
const (
	maxOfCable = 64   // sessions that neighbours have dialled
	cableRate  = 1000 // frames a second that this process reads from neighbours, before scaling
	cableBurst = 8192 // frames that it reads from them at once after a quiet time
	frameUnit  = 512  // bytes of a message that count as one more frame
)

// cable is the use that the neighbours at the other end of one cable make of this process.
type cable struct {
	accepted int           // sessions that are accepted or in handshake; guarded by Endpoint.mu
	pace     *rate.Limiter // limits the frames of all sessions, whichever side dialled
	paced    sync.Once     // logs that frames were delayed
}

// cableLocked returns the cable at an interface. It makes the entry at the first call and never deletes it, so that a
// neighbour that dials again does not get a new allowance. It needs Endpoint.mu.
func (e *Endpoint) cableLocked(netdev string) *cable {
	c := e.cables[netdev]
	if c == nil {
		c = &cable{pace: rate.NewLimiter(rate.Limit(cableRate/e.cfg.Clock.Scale()), cableBurst)}
		e.cables[netdev] = c
	}
	return c
}

// reserveSlot reserves a slot for one more session that a neighbour has dialled over the cable at netdev. It returns
// false if all slots of the cable are taken. releaseSlot releases the slot.
func (e *Endpoint) reserveSlot(netdev string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.cableLocked(netdev)
	if c.accepted >= maxOfCable {
		return false
	}
	c.accepted++
	return true
}

func (e *Endpoint) releaseSlot(netdev string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cableLocked(netdev).accepted--
}

// wait returns true once a frame with a body of size bytes may be handled, and false if done is closed before. It calls
// waited if the frame has to wait.
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

// neighbourListen is the listen ID in a neighbour's Hello. No listen has it.
const neighbourListen = 0

// DialNeighbour returns the session that this side has dialled with a process over the cable at netdev, an existing or
// a new one. The session is dialled, and resumed, only from that interface and to the given address, which has answered
// neighbour discovery there. It returns the errors that Dial returns.
func (e *Endpoint) DialNeighbour(ctx context.Context, process handshake.ProcessID, secret handshake.Secret, at netip.AddrPort, netdev string) (*Session, error) {
	if netdev == "" || !at.IsValid() || at.Port() == 0 {
		return nil, fmt.Errorf("control: dialling a neighbour needs an address and an interface, not %v and %q", at, netdev)
	}
	return e.dial(ctx, &dialSpec{
		target: target{process, netdev}, secret: secret, listen: neighbourListen,
		addrs: []netip.AddrPort{netip.AddrPortFrom(at.Addr().Unmap(), at.Port())},
	})
}

// admitNeighbour checks the Hello of a neighbour, and returns the interface that it arrived on, with a slot reserved
// there ([Endpoint.reserveSlot]). The error is a *accept.Refusal.
func (e *Endpoint) admitNeighbour(c *accept.Conn, x *handshake.Exchange) (netdev string, err error) {
	if e.cfg.NeighbourSecret == nil {
		return "", refusal(reasonNeighbour, handshake.RejectNeighbour, errors.New("this process does not relay"))
	}
	if err := x.Verify(e.cfg.NeighbourSecret[:]); err != nil {
		return "", refusal(reasonKey, handshake.RejectKey, err)
	}
	if netdev, err = e.cable(c.Conn); err != nil {
		return "", refusal(reasonCable, handshake.RejectNeighbour, err)
	}
	if !e.reserveSlot(netdev) {
		return "", refusal(reasonNeighbours, 0, fmt.Errorf("neighbours have %d sessions here over %s, and may have no more", maxOfCable, netdev))
	}
	return netdev, nil
}

// cable returns the interface that an accepted connection arrived on, if neighbours may connect there, and binds the
// connection to it: from then on the kernel drops packets for it that arrive on another interface or through a router.
// A message that the dialler can send only after that proves that it is at the other end of the cable.
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
