package path

import (
	"fmt"
	"slices"
	"strings"

	"ncclmesh/handshake"
	"ncclmesh/transport/control"
)

// leftOut names the settings of this node and of a peer that leave ports out, or only those that leave out RDMA ports, with
// the ports. It ends with "; ", as more follows; "" where there are none.
func (f *Finder) leftOut(s *control.Session, rdma bool) string {
	return namesLeftOut(f.LeftOut, s.Peer().Settings, s.LocalName(), s.Name(), rdma)
}

// namesLeftOut is leftOut for the settings of two nodes.
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
			continue // named with ours
		case i >= len(ours):
			node = peer
		case slices.ContainsFunc(theirs, same):
			node += " and " + peer
		}
		fmt.Fprintf(&b, "%s=%s leaves out %s on %s; ", s.Name, s.Value, s.LeftOut, node)
	}
	return b.String()
}
