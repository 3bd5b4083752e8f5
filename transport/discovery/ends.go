package discovery

import (
	"context"
	"slices"
	"time"

	"ncclmesh/handshake"
)

// End says which nodes answer on an interface's cable.
type End uint8

const (
	EndUnknown End = iota // no node answers, or none was queried
	EndPeer               // only the peer's node
	EndOther              // exactly one other node
	EndSeveral            // more than one node, as on a switch
)

const (
	endsPoll = 25 * time.Millisecond  // between two looks at the neighbours, before scaling
	endsWait = 250 * time.Millisecond // for the first reply of each cable, before scaling
)

// Ends returns what is at the other ends of the ports' cables, by interface, relative to a peer's node. It starts a round
// of queries and waits for replies: until every cable has one, and then for one more look, so that replies to the same
// query arrive too, but not longer than a quarter of a second. If thorough is true, it waits until the round ends. It
// returns nil if there are no ports, or if the context ends.
func (disc *Discovery) Ends(ctx context.Context, peer handshake.NodeID, thorough bool) map[string]End {
	ports := disc.cfg.Ports()
	if len(ports) == 0 {
		return nil
	}
	disc.Solicit()
	over, look := disc.Done(), disc.cfg.Clock.NewTicker(disc.cfg.Clock.Scaled(endsPoll))
	defer look.Stop()
	late := disc.cfg.Clock.NewTimer(disc.cfg.Clock.Scaled(endsWait))
	defer late.Stop()
	for waits, all := true, false; ; {
		at := classifyEnds(disc.Neighbours(), disc.switches(ports), peer)
		before := all
		all = !slices.ContainsFunc(ports, func(p Port) bool { return at[p.Netdev] == EndUnknown })
		if !waits || all && before {
			return at
		}
		select {
		case <-look.C:
		case <-over:
			waits = false
		case <-late.C:
			waits = thorough
		case <-ctx.Done():
			return nil
		}
	}
}

// classifyEnds returns what is at the other ends of interfaces, by name, relative to a peer's node. answered are the
// discovered neighbours, and switches the interfaces with too many of them.
func classifyEnds(answered []Neighbour, switches []string, peer handshake.NodeID) map[string]End {
	first, at := map[string]handshake.NodeID{}, map[string]End{}
	for _, n := range answered {
		node, known := first[n.Name]
		switch {
		case known && node != n.Node:
			at[n.Name] = EndSeveral
		case known:
		case n.Node == peer:
			first[n.Name], at[n.Name] = n.Node, EndPeer
		default:
			first[n.Name], at[n.Name] = n.Node, EndOther
		}
	}
	for _, name := range switches {
		at[name] = EndSeveral
	}
	return at
}

// switches returns the interfaces of the ports on which more than 16 nodes answered. Neighbours leaves these ports out.
func (disc *Discovery) switches(ports []Port) (names []string) {
	disc.mu.Lock()
	defer disc.mu.Unlock()
	for _, p := range ports {
		if c := disc.known[p.Index]; c != nil && c.tooMany {
			names = append(names, p.Netdev)
		}
	}
	return names
}
