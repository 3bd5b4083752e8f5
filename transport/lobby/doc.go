// Package lobby limits the connections that have not authenticated yet, as sshd's MaxStartups does.
//
// A listener that accepts connections from any address registers each with its [Lobby], and removes it after the handshake
// has authenticated or refused the peer. A new connection is admitted even at a limit: if its address has too many pending
// connections, the Lobby evicts one of them; if all places are taken, it evicts one of the address with the most. It
// chooses at random among the connections that have not sent their whole handshake. A peer needs only milliseconds to
// send it, so that neither a crowd of silent connections nor a flood, even from the peer's own address, can choose which
// of the peer's attempts is evicted.
package lobby
