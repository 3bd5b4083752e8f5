package overlay

import (
	"context"
	"errors"
	"slices"

	"ncclmesh/handshake"
	"ncclmesh/transport/discovery"
	"ncclmesh/transport/routing"
)

// Routes returns the routes through relays to a node, in order of preference. With rdma, it returns only routes with RDMA
// on every cable. It may take seconds. If there is no route, the error says why.
func (o *Overlay) Routes(ctx context.Context, node handshake.NodeID, rdma bool) ([]routing.Route, error) {
	p := o.running()
	if p == nil {
		return nil, ErrOff
	}
	found, err := p.routing.Routes(ctx, node, rdma)
	var none *routing.NoRouteError
	if errors.As(err, &none) {
		none.Foreign = p.discovery.Foreign()
	}
	return found, err
}

// routingPorts returns the ports that may have a cable, in the form that the map needs.
func (p *parts) routingPorts() (all []routing.Port) {
	for _, c := range p.cfg.Cables() {
		all = append(all, routing.Port{Index: c.Index, Name: c.Netdev, Mbps: uint32(p.ports[c.Index].Now().Mbps()), RDMA: c.RDMA})
	}
	return all
}

// Others reports whether neighbour discovery has found another node than one: a node that may become a relay to it.
func (o *Overlay) Others(than handshake.NodeID) bool {
	p := o.running()
	return p != nil && slices.ContainsFunc(p.discovery.Neighbours(), func(n discovery.Neighbour) bool { return n.Node != than })
}

// Ends returns what is at the other ends of the cables, by interface, relative to a peer's node; see
// [discovery.Discovery.Ends]. It returns nil if relaying is off.
func (o *Overlay) Ends(peer handshake.NodeID, thorough bool) map[string]discovery.End {
	if p := o.running(); p != nil {
		return p.discovery.Ends(o.cfg.Context, peer, thorough)
	}
	return nil
}

// Neighbours runs a round of neighbour discovery, and returns the neighbours that answered. It blocks for some seconds.
func (o *Overlay) Neighbours(ctx context.Context) ([]discovery.Neighbour, error) {
	p := o.running()
	if p == nil {
		return nil, ErrOff
	}
	p.discovery.Solicit()
	select {
	case <-p.discovery.Done():
		return p.discovery.Neighbours(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
