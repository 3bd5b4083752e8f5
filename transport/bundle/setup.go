package bundle

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/limit"
)

// ErrNoLane is the end of a set-up in which no lane proved itself.
var ErrNoLane = errors.New("no lane works")

// Establish sets the lanes of plan up from the sender's side. open is what the
// peer is told, but for the lanes. It returns the lanes in service; when there
// are none the error is ErrNoLane and each lane has its reason.
func (b *Bundle) Establish(ctx context.Context, plan []lane.Plan, open *handshake.Open) (uint32, error) {
	if err := b.env.Making.Do(func() error { return b.build(plan) }); err != nil {
		return 0, err
	}
	open.Base = uint64(b.Wire.Base())
	open.Domains, open.Lanes = b.offers(1<<len(b.lanes) - 1)
	if err := b.send(open); err != nil {
		return 0, err
	}
	acc, err := expect[*handshake.Accept](ctx, b)
	if err != nil {
		return 0, err
	}
	if err := b.adopt(acc.Base, acc.Domains); err != nil {
		return 0, err
	}
	connected := b.connectLanes(ctx, acc.Domains, acc.Lanes)
	if err := b.send(&handshake.Connected{Conn: b.ID, Lanes: connected}); err != nil {
		return 0, err
	}
	proved, _, err := b.prove(ctx, connected)
	if err != nil {
		return 0, err
	}
	if err := b.send(b.verdict(proved)); err != nil {
		return 0, err
	}
	theirs, err := expect[*handshake.Proved](ctx, b)
	if err != nil {
		return 0, err
	}
	mask, err := b.agree(proved, theirs)
	if err == nil {
		b.serve()
	}
	return mask, err
}

// Answer sets up from the receiver's side what the sender has opened: plan is this
// side's half of each lane that m offers.
func (b *Bundle) Answer(ctx context.Context, plan []lane.Plan, m *handshake.Open) (uint32, error) {
	if err := b.adopt(m.Base, m.Domains); err != nil {
		return 0, err
	}
	if err := b.env.Making.Do(func() error { return b.build(plan) }); err != nil {
		return 0, err
	}
	connected := b.connectLanes(ctx, m.Domains, m.Lanes)
	acc := &handshake.Accept{Conn: b.ID, Base: uint64(b.Wire.Base())}
	acc.Domains, acc.Lanes = b.offers(connected)
	if err := b.send(acc); err != nil {
		return 0, err
	}
	reached, err := expect[*handshake.Connected](ctx, b)
	if err != nil {
		return 0, err
	}
	proved, theirs, err := b.prove(ctx, connected&reached.Lanes)
	if err != nil {
		return 0, err
	}
	// In service before the sender hears of it: its first write may come at once.
	mask, agreed := b.agree(proved, theirs)
	if err := b.send(b.verdict(proved)); err != nil {
		return 0, err
	}
	if agreed == nil {
		b.serve() // what the peer hears of a lane from here on follows
	}
	return mask, agreed
}

// send gives the peer a set-up message.
func (b *Bundle) send(m handshake.Message) error {
	if err := b.Session.Send(m); err != nil {
		return fmt.Errorf("%w: %v: %w", b.unsentKind(), b, err)
	}
	return nil
}

// unsentKind is the kind of a message's failure: only a live session may be to blame
// for it.
func (b *Bundle) unsentKind() error {
	if b.Session.Alive() {
		return fault.ErrInternal
	}
	return fault.ErrPeerGone
}

// verdict is what this side tells of its proofs.
func (b *Bundle) verdict(proved uint32) *handshake.Proved {
	m := &handshake.Proved{Conn: b.ID, Lanes: proved}
	for _, l := range b.lanes {
		if proved&(1<<l.Index) == 0 && l.Why() != nil {
			f, why := handshake.LaneFailure{Index: l.Index}, l.Why()
			var node *lane.NodeFault
			if errors.As(why, &node) {
				f.Cause, why = handshake.CauseNode, node.Err
			}
			f.Reason = Clip(why.Error(), handshake.MaxReason-4)
			m.Failed = append(m.Failed, f)
		}
	}
	return m
}

// agree puts the lanes into service that both sides have proved, and gives the
// others back.
func (b *Bundle) agree(proved uint32, theirs *handshake.Proved) (uint32, error) {
	mask := proved & theirs.Lanes
	for _, f := range theirs.Failed {
		b.accused(f.Index, f.Cause, f.Reason)
	}
	b.mu.Lock()
	for _, l := range b.lanes {
		if mask&(1<<l.Index) != 0 {
			l.Enter(lane.Up)
			continue
		}
		if l.Why() == nil {
			l.Fail(fmt.Errorf("%s could not connect its half", b.Session.Name()))
		}
		if err := b.guarded("close", l.Close); err != nil {
			b.env.Log.Debug("an unused lane did not close", "lane", l.String(), "err", err)
		}
	}
	b.mu.Unlock()
	if mask == 0 {
		return 0, b.noneWorks()
	}
	return mask, nil
}

// noneWorks is the error of a connection none of whose lanes can be put into
// service.
func (b *Bundle) noneWorks() error {
	for _, l := range b.lanes {
		if why := l.Why(); limit.IsOwn(why) {
			return fmt.Errorf("%w: %v: %v: %w", fault.ErrOwn, b, l, why)
		}
	}
	return ErrNoLane
}

// offers returns what the peer is told: the domains and the lanes in mask.
func (b *Bundle) offers(mask uint32) (domains []handshake.Domain, lanes []handshake.Lane) {
	for _, d := range b.domains {
		domains = append(domains, handshake.Domain{Port: d.Port().Index(), RKey: d.Key()})
	}
	for _, l := range b.lanes {
		if mask&(1<<l.Index) != 0 {
			lanes = append(lanes, l.Half())
		}
	}
	return domains, lanes
}

// adopt takes over the peer's domains and memory.
func (b *Bundle) adopt(base uint64, domains []handshake.Domain) error {
	if len(domains) > lane.MaxDomains {
		return fmt.Errorf("%w: %v: peer names %d domains; %d can be", fault.ErrProtocol, b, len(domains), lane.MaxDomains)
	}
	b.PeerBase = base
	for i, d := range domains {
		b.PeerKeys[i] = d.RKey
	}
	return nil
}

// placeOf is the place of a peer's port among its domains.
func placeOf(domains []handshake.Domain, port uint8) (int, bool) {
	for i, d := range domains {
		if d.Port == port {
			return i, true
		}
	}
	return 0, false
}

// Announce logs the connection as NCCL's own transport would, and the lanes that
// failed it although their paths had been proved.
func (b *Bundle) Announce() {
	var used []string
	for _, l := range b.lanes {
		if !l.InService() {
			text := "not used: " + b.finding(l).String()
			b.env.WarnOnce(text, text)
			continue
		}
		used = append(used, fmt.Sprintf("%v %s", l, l.Terms()))
		if text := l.Remark(); text != "" {
			b.env.WarnOnce(text, text)
		}
	}
	b.env.Log.Info(fmt.Sprintf("%v: %s", b, strings.Join(used, ", ")))
}
