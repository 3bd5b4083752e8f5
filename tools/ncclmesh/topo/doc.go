// Package topo says how nodes are cabled, and draws it.
//
// An agent on every node ([Probe]) opens the node's ports as the plugin does, queries their neighbours,
// and tries the ways to the nodes behind it in the order of their names, over RDMA and TCP; of
// ports without a subnet in common, those at whose cable no other node is heard. Packets that
// pass in both directions prove a way. [Survey] has all agents do so at once, and makes a [Map]
// of what they saw: cables with their halves, ports with nothing at the other end, nodes that
// share no cable, rings. A Map is pure data: text, JSON, DOT and SVG are made of it, and
// [Map.Compare] says what is not as [Expected].
//
// A cable joins two cages. A cage that meets several others is at a switch, and what is there
// is a [Network], no cable. Nothing is concluded from addresses.
package topo
