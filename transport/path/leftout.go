package path

import (
	"fmt"
	"slices"
	"strings"

	"ncclmesh/handshake"
	"ncclmesh/transport/control"
)

// leftOut returns the settings of this node and of a peer that exclude ports, with those ports, for a message
// to the user; with rdma only the settings that exclude RDMA ports. It ends with "; ", because more text
// follows. It returns "" if there are none.
func (f *Finder) leftOut(s *control.Session, rdma bool) string {
	return namesLeftOut(f.LeftOut, s.Peer().Settings, s.LocalName(), s.Name(), rdma)
}

// namesLeftOut implements leftOut for the settings of two nodes.
func namesLeftOut(ours, theirs []handshake.Setting, local, peer string, rdma bool) string {
	var b strings.Builder
	for i, s := range slices.Concat(ours, theirs) {
		ofRDMA := strings.HasPrefix(s.Name, "NCCL_IB_") || s.Name == "NCCL_MESH_TRANSPORT" && s.Value == "tcp"
		same := func(o handshake.Setting) bool { return o == s }
		node := local
		switch {
		case s.LeftOut == "" || rdma && !ofRDMA:
			continue
		case i >= len(ours) && slices.ContainsFunc(ours, same):
			continue // it is listed with this node's
		case i >= len(ours):
			node = peer
		case slices.ContainsFunc(theirs, same):
			node += " and " + peer
		}
		fmt.Fprintf(&b, "%s=%s leaves out %s on %s; ", s.Name, s.Value, s.LeftOut, node)
	}
	return b.String()
}
