// Package routing finds routes through relays to nodes that share no cable with this one, with a link-state protocol.
//
// A map is a list of nodes with the cables that each reports. A process that needs a route queries the nodes at the other
// ends of its own cables, its neighbours, and these query theirs. A query lists the nodes that were already queried, so that
// no node gets it twice. From the replies the process computes routes: first those through the fewest relays, then the
// widest, no two over one cable. A cable is used only if both of its ends report it. The map does not prove that the cable
// works; the lane that uses it validates that. A false map can therefore only hide a route, or yield a route on which
// no lane comes up.
//
// One map serves all targets. It is kept until a port of this node changes.
package routing
