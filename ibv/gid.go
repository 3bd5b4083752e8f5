package ibv

import "net/netip"

// A GID is a port's 128-bit address, for RoCE an IPv6 address or an IPv4-mapped one.
type GID [16]byte

func (g GID) String() string { return netip.AddrFrom16(g).Unmap().String() }
