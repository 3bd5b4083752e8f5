package routing

import (
	"cmp"
	"slices"

	"ncclmesh/handshake"
)

// graph is the nodes that cables connect to this one, directly or through others.
type graph struct {
	nodes   []*handshake.MapNode // this node first, then the others, the nearest first
	cables  [][]cable            // of each node, ordered by name
	entries map[handshake.NodeID]*handshake.MapNode
}

// cable is a cable, seen from its near end.
type cable struct {
	near, far end
	mbps      uint32 // of the slower end
	rdma      bool   // at both ends
}

// end is an end of a cable. A port with several neighbours, because it leads to a switch or its adapter shows two
// functions, has one cable for each of them. They share the port's bandwidth.
type end struct {
	node int // index in graph.nodes
	port uint8
	name string
}

// newGraph makes a graph of the report of this node and the reports of others. A report of another node about this node
// is ignored.
func newGraph(own *handshake.MapNode, reported []handshake.MapNode) *graph {
	entries := map[handshake.NodeID]*handshake.MapNode{own.Node: own}
	for i := range reported {
		n := &reported[i]
		if old := entries[n.Node]; old == nil || old != own && supersedes(n, old) {
			entries[n.Node] = n
		}
	}
	links := map[handshake.NodeID][]handshake.MapLink{} // ordered by name, of the nodes looked at so far
	sorted := func(n *handshake.MapNode) []handshake.MapLink {
		if _, ok := links[n.Node]; !ok {
			links[n.Node] = sortLinks(n.Links)
		}
		return links[n.Node]
	}
	g := &graph{nodes: []*handshake.MapNode{own}, entries: entries}
	index := map[handshake.NodeID]int{own.Node: 0}
	for i := 0; i < len(g.nodes); i++ {
		here := g.nodes[i]
		g.cables = append(g.cables, nil)
		for _, l := range sorted(here) {
			peer := entries[l.Peer]
			if peer == nil || peer == here {
				continue
			}
			back, ok := find(sorted(peer), l.PeerName, here.Node, l.Name)
			if !ok {
				continue
			}
			j, known := index[l.Peer]
			if !known {
				if len(g.nodes) == handshake.MaxMapNodes {
					continue
				}
				j = len(g.nodes)
				index[l.Peer] = j
				g.nodes = append(g.nodes, peer)
			}
			g.cables[i] = append(g.cables[i], cable{
				near: end{i, l.Port, l.Name}, far: end{j, back.Port, back.Name},
				mbps: min(l.Mbps, back.Mbps), rdma: l.RDMA && back.RDMA,
			})
		}
	}
	return g
}

// supersedes reports whether a report about a node replaces an older one: the report of a process that only relays
// does, and a report of the same process with more links, because that is newer.
func supersedes(n, old *handshake.MapNode) bool {
	if n.Dedicated != old.Dedicated {
		return n.Dedicated
	}
	return n.Process == old.Process && len(n.Links) > len(old.Links)
}

// index returns the index of a node in the graph, or -1 if no cable leads to it.
func (g *graph) index(id handshake.NodeID) int {
	return slices.IndexFunc(g.nodes, func(n *handshake.MapNode) bool { return n.Node == id })
}

// sortLinks returns the links ordered by name, without duplicates.
func sortLinks(links []handshake.MapLink) []handshake.MapLink {
	sorted := slices.Clone(links)
	slices.SortStableFunc(sorted, compareLinks)
	return slices.CompactFunc(sorted, func(a, b handshake.MapLink) bool { return compareLinks(a, b) == 0 })
}

func compareLinks(a, b handshake.MapLink) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.PeerName, b.PeerName), slices.Compare(a.Peer[:], b.Peer[:]))
}

// find returns the link with that name that leads to that interface of a peer.
func find(sorted []handshake.MapLink, name string, peer handshake.NodeID, peerName string) (handshake.MapLink, bool) {
	i, ok := slices.BinarySearchFunc(sorted, handshake.MapLink{Name: name, Peer: peer, PeerName: peerName}, compareLinks)
	if !ok {
		return handshake.MapLink{}, false
	}
	return sorted[i], true
}

// nearest returns at most as many nodes as a map may hold: this node first, then the nodes that cables lead to, then
// other reported nodes.
func nearest(own handshake.MapNode, reported []handshake.MapNode) []handshake.MapNode {
	var nodes []handshake.MapNode
	has := map[handshake.NodeID]bool{}
	add := func(n *handshake.MapNode) {
		if !has[n.Node] && len(nodes) < handshake.MaxMapNodes {
			has[n.Node] = true
			nodes = append(nodes, *n)
		}
	}
	g := newGraph(&own, reported)
	for _, n := range g.nodes {
		add(n)
	}
	for i := range reported {
		add(g.entries[reported[i].Node])
	}
	return nodes
}
