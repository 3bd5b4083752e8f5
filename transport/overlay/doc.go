// Package overlay connects nodes that share no cable, through the nodes between them.
//
//	discovery     the processes at the other ends of this node's cables
//	routing       the map of the mesh, and routes from it
//	relay         circuits through relays, and those that this process relays for others
//	relay/engine  the forwarder of circuits over RDMA
//
// An [Overlay] makes these parts, connects them, and is all that the rest of the process uses of them: it asks the Overlay
// for routes and circuits, and passes it the messages of sessions. [Config] and [Overlay.Start] list all that the overlay
// needs of the process. A nil *Overlay is valid and means that relaying is off: it has no routes, refuses circuits, and
// ignores messages.
package overlay
