package transport

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"ncclmesh/handshake"
)

// hostName is what the node is called in messages: the host's name, or what the user
// gave instead.
func hostName(hostID string) (string, error) {
	if hostID != "" {
		return hostID, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("read the host name: %w", err)
	}
	name, _, _ = strings.Cut(name, ".")
	return name, nil
}

// nodeID identifies the node: boot id and network namespace, or what the user
// gave instead.
func nodeID(hostID string) (handshake.NodeID, error) {
	text := "host " + hostID
	if hostID == "" {
		boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return handshake.NodeID{}, fmt.Errorf("identify the node: %w; set NCCL_HOSTID", err)
		}
		var st unix.Stat_t
		if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
			return handshake.NodeID{}, fmt.Errorf("identify the network namespace: %w; set NCCL_HOSTID", err)
		}
		text = fmt.Sprintf("boot %s net %d", strings.TrimSpace(string(boot)), st.Ino)
	}
	sum := sha256.Sum256([]byte(text))
	return handshake.NodeID(sum[:16]), nil
}
