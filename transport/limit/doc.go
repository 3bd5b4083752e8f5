// Package limit knows what this node may use: how many descriptors the process may have, and which errors say that this
// node has run out of something, so that nobody looks for the fault at a peer.
package limit
