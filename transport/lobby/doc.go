// Package lobby holds the connections that have not proved themselves, within
// limits.
//
// A listener that is open to everyone lets each connection into its [Lobby], and
// takes it out once that has shown who it is or is refused. Whoever comes gets in:
// when an address has its share, one of its own strangers has to go; when all
// places are taken, one of the address that has most of them. Which one is left to
// chance, among those that have not said all they have to: a peer needs
// milliseconds for that, and neither a silent crowd nor a flood, though they come
// from the peer's own address, can foresee which of its attempts to push out.
package lobby
