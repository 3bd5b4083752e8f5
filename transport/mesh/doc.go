// Package mesh finds ways to nodes that no cable joins to this one.
//
// A map is what nodes tell of their cables. Whoever needs a way asks the nodes at the
// other ends of its own cables, its neighbours, which ask theirs; a question names
// those who have been asked, so that it goes to nobody twice. From the map the asker
// computes routes: through the fewest relays, then the widest, no two over one cable.
// A cable counts only where both ends tell of it; that anything passes over it is for
// the lane that uses it to prove. What a map says is believed no further: a lie
// costs a route that is not found, or one over which no lane comes up.
//
// One map serves all targets, and is kept until a port changes here.
package mesh
