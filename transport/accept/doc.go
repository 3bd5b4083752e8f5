// Package accept accepts TCP connections from any address, and limits those that have not authenticated yet, as sshd's
// MaxStartups does.
//
// An [Acceptor] runs a handshake on each connection that its listeners accept. A connection whose handshake fails, or
// lasts too long, is closed, counted by reason, and logged once for each reason and address ([Refusals]).
//
// Until its peer has authenticated, a connection is pending. A [Limiter] limits the number of pending connections, in total
// and of one address. A new connection is admitted even at a limit: if its address has too many pending connections, the
// Limiter evicts one of them; if all places are taken, it evicts one of the address with the most. It chooses at random
// among the connections that have not sent their whole handshake. A peer needs only milliseconds to send it, so that neither
// a crowd of silent connections nor a flood, even from the peer's own address, can choose which of the peer's attempts is
// evicted.
package accept
