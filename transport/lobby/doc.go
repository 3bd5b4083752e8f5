// Package lobby holds the connections that have not proved themselves, within
// limits.
//
// A listener that is open to everyone lets each connection into its [Lobby], and
// takes it out once that has shown who it is or is refused. One address holds no
// more than its share. When all places are taken the oldest stranger has to go: a
// peer needs milliseconds, so that a crowd of silent ones cannot keep it out.
package lobby
