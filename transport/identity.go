package transport

import (
	"crypto/sha256"
	"strings"

	"ncclmesh/handshake"
)

// hostName returns the name of the node in messages: NCCL_HOSTID if it is set, otherwise the host name up to the first
// dot.
func (o *Options) hostName() (string, error) {
	if o.HostID != "" {
		return o.HostID, nil
	}
	name, err := o.Machine.hostname()
	name, _, _ = strings.Cut(name, ".")
	return name, err
}

// nodeID returns the identifier of the node: a hash of its boot ID and network namespace, or of NCCL_HOSTID if it is
// set.
func (o *Options) nodeID() (handshake.NodeID, error) {
	text := "host " + o.HostID
	if o.HostID == "" {
		boot, err := o.Machine.boot()
		if err != nil {
			return handshake.NodeID{}, err
		}
		text = boot
	}
	sum := sha256.Sum256([]byte(text))
	return handshake.NodeID(sum[:16]), nil
}
