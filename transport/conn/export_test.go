package conn

import (
	"context"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
)

// Build runs only the first step of a set-up: domains and lanes.
func (c *Conn) Build(plan []lane.Spec) error { return c.firstSetup.build(plan) }

// DomainsAndLanes returns what the peer needs to connect the lanes in mask.
func (c *Conn) DomainsAndLanes(mask uint32) ([]handshake.Domain, []handshake.Lane) {
	return c.firstSetup.domainsAndLanes(mask)
}

// SetPeerDomains stores the address of the peer's ring and the keys of its domains.
func (c *Conn) SetPeerDomains(base uint64, devs []handshake.Domain) error {
	return c.setPeerDomains(base, devs)
}

// ConnectLanes runs only the step of the first set-up that connects lanes.
func (c *Conn) ConnectLanes(ctx context.Context, devs []handshake.Domain, remote []handshake.Lane) uint32 {
	return c.firstSetup.connectLanes(ctx, devs, remote)
}

// Validate runs only the step of the first set-up that validates the lanes in mask.
func (c *Conn) Validate(ctx context.Context, mask uint32) (uint32, *handshake.Validated, error) {
	return c.firstSetup.validate(ctx, mask)
}

// ValidatedMessage returns the message with the result of this side's validation.
func (c *Conn) ValidatedMessage(validated uint32) *handshake.Validated {
	return c.firstSetup.validatedMessage(validated)
}

// PutInService runs only the last step of the first set-up.
func (c *Conn) PutInService(validated uint32, peerResult *handshake.Validated) (uint32, error) {
	return c.firstSetup.putInService(validated, peerResult)
}

// FinishLate calls what after the first lanes have come into service, and before their set-up is finished.
func (c *Conn) FinishLate(what func()) {
	c.firstSetup.finished.Store(false)
	what()
	c.firstSetup.finish(c.firstSetup.laneMask())
}

// SeemSlow makes the first set-up find that this process did not run for an hour.
func (c *Conn) SeemSlow() {
	c.firstSetup.clock.StartAt(time.Now().Add(-time.Hour))
	c.firstSetup.clock.Look()
}

// SendMessage sends the peer a message.
func (c *Conn) SendMessage(m handshake.Message) error { return c.firstSetup.c.send(m) }

// ExpectValidated waits for the result of the peer's validation.
func (c *Conn) ExpectValidated(ctx context.Context) (*handshake.Validated, error) {
	return expect[*handshake.Validated](ctx, c.firstSetup)
}

// IsVacant reports whether a joining lane may use index i. c must be locked.
func (c *Conn) IsVacant(i int) bool { return c.isVacant(i) }

// Env returns what the connections of its process share.
func (c *Conn) Env() *Env { return c.env }

// InsteadOfPoll makes the connection call f instead of polling its lanes until undo is called.
func (c *Conn) InsteadOfPoll(f func()) (undo func()) {
	domains := c.domains
	c.domains = []lane.Domain{instead{f: f}}
	return func() { c.domains = domains }
}

type instead struct {
	lane.Domain
	f func()
}

func (d instead) Poll(bool)  { d.f() }
func (d instead) Flush(bool) {}

// GrantsRequested reports whether a sender has requested grants over a lane since its last eager message.
func GrantsRequested(s *Sender) bool {
	s.Lock()
	defer s.Unlock()
	return s.eager.sent > 0 && s.eager.grantsRequestedAt == s.eager.sent
}

// DefersGrants reports whether a receiver has deferred a grant.
func DefersGrants(r *Receiver) bool {
	r.Lock()
	defer r.Unlock()
	return r.unexpected.deferred != slots{}
}

// OldestInFlight returns the number of the oldest message with a part in flight on each lane.
func OldestInFlight(s *Sender) (first [lane.MaxParts]uint64) {
	s.Lock()
	defer s.Unlock()
	s.oldestInFlight(&first)
	return first
}

// IsEager reports whether a sender may send short messages before their grants.
func IsEager(s *Sender) bool {
	s.Lock()
	defer s.Unlock()
	return s.traits.Eager
}
