package transport

import (
	"crypto/sha256"
	"strings"

	"ncclmesh/handshake"
)

// hostName is what the node is called in messages: the host's name, or what the user
// gave instead.
func (o *Options) hostName() (string, error) {
	if o.HostID != "" {
		return o.HostID, nil
	}
	name, err := o.Machine.hostname()
	name, _, _ = strings.Cut(name, ".")
	return name, err
}

// nodeID identifies the node: by its boot and network namespace, or by what the user
// gave instead.
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
