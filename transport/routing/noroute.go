package routing

import (
	"fmt"
	"slices"
	"strings"

	"ncclmesh/handshake"
	"ncclmesh/transport/discovery"
	"ncclmesh/transport/fault"
)

// NoRouteError is the error of a search that has found no route to a node through others. It is an [fault.ErrUnreachable].
type NoRouteError struct {
	Reason  string   // the nodes that were queried, what they know, and the ports without a neighbour
	Foreign []string // interfaces at which a node has another NCCL_MESH_KEY, or none; may be empty
}

// Error returns the reason and what to do.
func (e *NoRouteError) Error() string {
	text := fmt.Sprintf("%v: no route through other nodes: %s. Check the cables, that each node between runs a rank or ncclmesh relay, that all have NCCL_MESH_RELAY=auto and the same NCCL_MESH_KEY or none, and that no firewall blocks UDP port %d", fault.ErrUnreachable, e.Reason, discovery.UDPPort)
	if len(e.Foreign) > 0 {
		text += ". " + e.OtherKey()
	}
	return text
}

// OtherKey names the interfaces in Foreign for people; "" where there are none.
func (e *NoRouteError) OtherKey() string {
	if len(e.Foreign) == 0 {
		return ""
	}
	return fmt.Sprintf("A node at %s has another NCCL_MESH_KEY, or none: all nodes must have the same", strings.Join(e.Foreign, ", "))
}

// Unwrap returns the kind of the error.
func (e *NoRouteError) Unwrap() error { return fault.ErrUnreachable }

// noRoute returns the error for a node to which the map has no route.
func (r *Router) noRoute(a *query, target handshake.NodeID, rdma bool) error {
	own := r.own()
	r.mu.Lock()
	reported := a.nodesLocked()
	var knew, silent []string
	for _, q := range a.neighbours {
		switch at := "the node at " + q.peer.Name; {
		case q.answer != nil:
			knew = append(knew, fmt.Sprintf("%s (at %s)", q.answer[0].Hostname, q.peer.Name))
		case q.err != nil:
			silent = append(silent, fmt.Sprintf("%s could not be queried: %s", at, fault.OneLine(q.err)))
		default:
			silent = append(silent, at+" did not answer")
		}
	}
	r.mu.Unlock()
	g := newGraph(&own, reported)
	var say []string
	if len(knew) > 0 {
		say = append(say, fmt.Sprintf("queried %s, %s", strings.Join(knew, ", "), g.missing(target, rdma)))
	}
	say = append(say, silent...)
	if names := silentPorts(r.Ports(), own.Links); len(names) > 0 {
		say = append(say, "no neighbour answered on "+strings.Join(names, ", "))
	}
	if len(say) == 0 {
		say = append(say, "this node has no port with a cable")
	}
	return &NoRouteError{Reason: strings.Join(say, "; ")}
}

// missing returns the reason why the map yields no route.
func (g *graph) missing(target handshake.NodeID, rdma bool) string {
	switch {
	case rdma && len(g.routes(target, false)) > 0:
		return "but every route has a cable that is not RDMA at both ends"
	case g.index(target) > 0:
		return "but only a cable of this node leads there"
	}
	return "and no known cable leads there"
}

// silentPorts returns the names of the ports without a neighbour.
func silentPorts(ports []Port, links []handshake.MapLink) []string {
	var names []string
	for _, p := range ports {
		if !slices.ContainsFunc(links, func(l handshake.MapLink) bool { return l.Port == p.Index && l.Name == p.Name }) {
			names = append(names, p.Name)
		}
	}
	return names
}
