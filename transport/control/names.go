package control

import (
	"fmt"
	"sync"

	"ncclmesh/handshake"
)

// maxNames is how many host names are remembered: a mesh has far fewer, and neighbours may invent them.
const maxNames = 4096

// names knows which host names more than one node has.
type names struct {
	mu     sync.Mutex // a leaf
	nodes  map[string]handshake.NodeID
	shared map[string]bool
}

// note takes down who has a name.
func (n *names) note(host string, node handshake.NodeID) {
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

// Name is what the peer's node is called in lines for people: its host name, and where another node has that too, also
// the address at which the session reaches it.
func (s *Session) Name() string {
	if !s.e.names.ambiguous(s.peer.Hostname) {
		return s.peer.Hostname
	}
	return s.peer.Hostname + " (" + s.RemoteAddr().Addr().String() + ")"
}

// LocalName is what this node is called beside that.
func (s *Session) LocalName() string {
	if !s.e.names.ambiguous(s.e.cfg.Hostname) {
		return s.e.cfg.Hostname
	}
	return s.e.cfg.Hostname + " (" + s.LocalAddr().Addr().String() + ")"
}

// Both returns the names of this process and the peer for a line that names both: LocalName and Name. To the names of two
// processes of one node it adds their ids, and the pid of this one.
func (s *Session) Both() (local, remote string) {
	local, remote = s.LocalName(), s.Name()
	if s.peer.Node == s.e.cfg.Node && s.peer.Process != s.e.cfg.Process {
		local = fmt.Sprintf("%s/%.8v (pid %d)", local, s.e.cfg.Process, s.e.cfg.PID)
		remote = fmt.Sprintf("%s/%.8v", remote, s.peer.Process)
	}
	return local, remote
}
