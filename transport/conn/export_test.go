package conn

import (
	"context"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
)

// The steps of a set-up, each by itself.

func (c *Conn) Build(plan []lane.Plan) error { return c.first.build(plan) }

func (c *Conn) Offers(mask uint32) ([]handshake.Domain, []handshake.Lane) {
	return c.first.offers(mask)
}

func (c *Conn) Adopt(base uint64, devs []handshake.Domain) error { return c.adopt(base, devs) }

func (c *Conn) ConnectLanes(ctx context.Context, devs []handshake.Domain, remote []handshake.Lane) uint32 {
	return c.first.connectLanes(ctx, devs, remote)
}

func (c *Conn) Prove(ctx context.Context, mask uint32) (uint32, *handshake.Proved, error) {
	return c.first.validate(ctx, mask)
}

// OwnProved is what this side tells of its proofs.
func (c *Conn) OwnProved(proved uint32) *handshake.Proved { return c.first.validatedMessage(proved) }

func (c *Conn) Agree(proved uint32, theirs *handshake.Proved) (uint32, error) {
	return c.first.putInService(proved, theirs)
}

// ServeLate has something happen after the first lanes have come into service, and before
// their set-up knows of it.
func (c *Conn) ServeLate(what func()) {
	c.first.over.Store(false)
	what()
	c.first.serve(c.first.all())
}

// SeemSlow has the set-up of the first lanes find that this process did not run for long.
func (c *Conn) SeemSlow() {
	c.first.clock.StartAt(time.Now().Add(-time.Hour))
	c.first.clock.Look()
}

func (c *Conn) SendMessage(m handshake.Message) error { return c.first.c.send(m) }

// ExpectProved waits for the peer's word on its proofs.
func (c *Conn) ExpectProved(ctx context.Context) (*handshake.Proved, error) {
	return expect[*handshake.Proved](ctx, c.first)
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
func Asked(s *Sender) bool {
	s.Lock()
	defer s.Unlock()
	return s.eager.sent > 0 && s.eager.asked == s.eager.sent
}

// Keeps reports whether a receiver keeps a grant back.
func Keeps(r *Receiver) bool {
	r.Lock()
	defer r.Unlock()
	return !r.unexpected.deferred.none()
}

// Waits says for each lane which message was posted first of those that wait on it.
func Waits(s *Sender) (first [lane.MaxParts]uint64) {
	s.Lock()
	defer s.Unlock()
	s.waits(&first)
	return first
}

// IsEager reports whether a sender's short messages go before their grants.
func IsEager(s *Sender) bool {
	s.Lock()
	defer s.Unlock()
	return s.traits.Eager
}
