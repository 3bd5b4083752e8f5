// Package limit returns what this node may use, and recognises errors that say that it ran out of something, such as
// descriptors, so that the fault is not looked for at a peer.
package limit
