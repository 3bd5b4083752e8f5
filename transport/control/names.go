package control

import (
	"fmt"
	"sync"

	"ncclmesh/handshake"
)

// maxNames is how many host names are remembered. A mesh has far fewer, but neighbours may invent names.
const maxNames = 4096

// names records which host names belong to more than one node.
type names struct {
	mu     sync.Mutex // a leaf lock
	nodes  map[string]handshake.NodeID
	shared map[string]bool
}

// add records that a node has a host name.
func (n *names) add(host string, node handshake.NodeID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nodes == nil {
		n.nodes, n.shared = make(map[string]handshake.NodeID), make(map[string]bool)
	}
	if first, ok := n.nodes[host]; !ok {
		if len(n.nodes) < maxNames {
			n.nodes[host] = node
		}
	} else if first != node {
		n.shared[host] = true
	}
}

func (n *names) ambiguous(host string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.shared[host]
}

// Name returns the name of the peer's node for log lines and errors: its host name, and if another node has the same,
// also the address at which the session reaches it.
func (s *Session) Name() string {
	if !s.e.names.ambiguous(s.peer.Hostname) {
		return s.peer.Hostname
	}
	return s.peer.Hostname + " (" + s.RemoteAddr().Addr().String() + ")"
}

// LocalName returns the name of this node for log lines and errors: its host name, and if another node has the same,
// also this side's address of the session.
func (s *Session) LocalName() string {
	if !s.e.names.ambiguous(s.e.cfg.Hostname) {
		return s.e.cfg.Hostname
	}
	return s.e.cfg.Hostname + " (" + s.LocalAddr().Addr().String() + ")"
}

// Both returns the names of this process and the peer for a text that names both: LocalName and Name. If both processes
// are on one node, it adds their IDs, and the PID of this one.
func (s *Session) Both() (local, remote string) {
	local, remote = s.LocalName(), s.Name()
	if s.peer.Node == s.e.cfg.Node && s.peer.Process != s.e.cfg.Process {
		local = fmt.Sprintf("%s/%.8v (pid %d)", local, s.e.cfg.Process, s.e.cfg.PID)
		remote = fmt.Sprintf("%s/%.8v", remote, s.peer.Process)
	}
	return local, remote
}
