package bundle

import (
	"context"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
)

// The steps of a set-up, each by itself.

func (b *Bundle) Build(plan []lane.Plan) error { return b.first.build(plan) }

func (b *Bundle) Offers(mask uint32) ([]handshake.Domain, []handshake.Lane) {
	return b.first.offers(mask)
}

func (b *Bundle) Adopt(base uint64, devs []handshake.Domain) error { return b.adopt(base, devs) }

func (b *Bundle) ConnectLanes(ctx context.Context, devs []handshake.Domain, remote []handshake.Lane) uint32 {
	return b.first.connectLanes(ctx, devs, remote)
}

func (b *Bundle) Prove(ctx context.Context, mask uint32) (uint32, *handshake.Proved, error) {
	return b.first.prove(ctx, mask)
}

// OwnProved is what this side tells of its proofs.
func (b *Bundle) OwnProved(proved uint32) *handshake.Proved { return b.first.verdict(proved) }

func (b *Bundle) Agree(proved uint32, theirs *handshake.Proved) (uint32, error) {
	return b.first.agree(proved, theirs)
}

// ServeLate has something happen after the first lanes have come into service, and before
// their set-up knows of it.
func (b *Bundle) ServeLate(what func()) {
	b.first.over.Store(false)
	what()
	b.first.serve(b.first.all())
}

// SeemSlow has the set-up of the first lanes find that this process did not run for long.
func (b *Bundle) SeemSlow() {
	b.first.clock.StartAt(time.Now().Add(-time.Hour))
	b.first.clock.Look()
}

func (b *Bundle) SendMessage(m handshake.Message) error { return b.first.b.send(m) }

// ExpectProved waits for the peer's word on its proofs.
func (b *Bundle) ExpectProved(ctx context.Context) (*handshake.Proved, error) {
	return expect[*handshake.Proved](ctx, b.first)
}

// Env is what the bundles of its process have in common.
func (b *Bundle) Env() *Env { return b.env }

// SwapHalf puts another half on the bundle, to which its lanes go on telling what they
// told the one before.
func (b *Bundle) SwapHalf(h Half) (was Half) {
	was, b.half = b.half, h
	return was
}
