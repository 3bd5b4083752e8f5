package conn

import (
	"context"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
)

// The steps of a set-up, each by itself.

func (c *Conn) Build(plan []lane.Plan) error { return c.firstSetup.build(plan) }

func (c *Conn) DomainsAndLanes(mask uint32) ([]handshake.Domain, []handshake.Lane) {
	return c.firstSetup.domainsAndLanes(mask)
}

func (c *Conn) SetPeerDomains(base uint64, devs []handshake.Domain) error {
	return c.setPeerDomains(base, devs)
}

func (c *Conn) ConnectLanes(ctx context.Context, devs []handshake.Domain, remote []handshake.Lane) uint32 {
	return c.firstSetup.connectLanes(ctx, devs, remote)
}

func (c *Conn) Validate(ctx context.Context, mask uint32) (uint32, *handshake.Proved, error) {
	return c.firstSetup.validate(ctx, mask)
}

// OwnProved is what this side tells of its proofs.
func (c *Conn) ValidatedMessage(proved uint32) *handshake.Proved {
	return c.firstSetup.validatedMessage(proved)
}

func (c *Conn) PutInService(proved uint32, theirs *handshake.Proved) (uint32, error) {
	return c.firstSetup.putInService(proved, theirs)
}

// ServeLate has something happen after the first lanes have come into service, and before
// their set-up knows of it.
func (c *Conn) FinishLate(what func()) {
	c.firstSetup.finished.Store(false)
	what()
	c.firstSetup.finish(c.firstSetup.laneMask())
}

// SeemSlow has the set-up of the first lanes find that this process did not run for long.
func (c *Conn) SeemSlow() {
	c.firstSetup.clock.StartAt(time.Now().Add(-time.Hour))
	c.firstSetup.clock.Look()
}

func (c *Conn) SendMessage(m handshake.Message) error { return c.firstSetup.c.send(m) }

// ExpectProved waits for the peer's word on its proofs.
func (c *Conn) ExpectValidated(ctx context.Context) (*handshake.Proved, error) {
	return expect[*handshake.Proved](ctx, c.firstSetup)
}

// Env is what the connections of its process have in common.
func (c *Conn) Env() *Env { return c.env }

// InsteadOfPoll has what f does come when the connection looks at its lanes, which it does not until undo is called.
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

// Asked reports whether a sender has asked for grants over a lane since its last eager message.
func GrantsRequested(s *Sender) bool {
	s.Lock()
	defer s.Unlock()
	return s.eager.sent > 0 && s.eager.grantsRequestedAt == s.eager.sent
}

// Keeps reports whether a receiver keeps a grant back.
func DefersGrants(r *Receiver) bool {
	r.Lock()
	defer r.Unlock()
	return !r.unexpected.deferred.none()
}

// Waits says for each lane which message was posted first of those that wait on it.
func OldestInFlight(s *Sender) (first [lane.MaxParts]uint64) {
	s.Lock()
	defer s.Unlock()
	s.oldestInFlight(&first)
	return first
}

// IsEager reports whether a sender's short messages go before their grants.
func IsEager(s *Sender) bool {
	s.Lock()
	defer s.Unlock()
	return s.traits.Eager
}
