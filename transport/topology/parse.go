package topology

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"ncclmesh/handshake"
)

// Parsers of sysfs attributes. Their argument is the content of a file without the newline.

// parseRate parses ports/N/rate, such as "200 Gb/sec (4X HDR)", and returns Mb/s.
func parseRate(s string) (int, error) {
	f := strings.Fields(s)
	if len(f) < 2 || f[1] != "Gb/sec" {
		return 0, fmt.Errorf("rate %q: want a number and Gb/sec", s)
	}
	gbps, err := strconv.ParseFloat(f[0], 64)
	if err != nil || !(gbps > 0 && gbps <= 1e6) { // NaN compares false
		return 0, fmt.Errorf("rate %q: want a number of Gb/sec above 0", s)
	}
	return int(math.Round(gbps * 1000)), nil
}

// parseGID parses ports/N/gids/I: eight groups of four hexadecimal digits.
func parseGID(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is6() || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("GID %q: want eight groups of four hexadecimal digits", s)
	}
	return a, nil
}

// parseGUID parses node_guid and sys_image_guid: four groups of four hexadecimal digits.
func parseGUID(s string) (uint64, error) {
	groups := strings.Split(s, ":")
	var guid uint64
	for _, g := range groups {
		v, err := strconv.ParseUint(g, 16, 16)
		if err != nil || len(g) != 4 || len(groups) != 4 {
			return 0, fmt.Errorf("GUID %q: want four groups of four hexadecimal digits", s)
		}
		guid = guid<<16 | v
	}
	return guid, nil
}

// parseGIDType parses ports/N/gid_attrs/types/I. The kernel has one name for InfiniBand and RoCE v1.
func parseGIDType(s string, linkLayer uint8) (GIDType, error) {
	switch {
	case linkLayer == handshake.IBV_LINK_LAYER_INFINIBAND:
		return GIDTypeIB, nil
	case s == "IB/RoCE v1":
		return GIDTypeRoCEv1, nil
	case s == "RoCE v2":
		return GIDTypeRoCEv2, nil
	}
	return 0, fmt.Errorf("GID type %q: want %q or %q", s, "IB/RoCE v1", "RoCE v2")
}

// parseState parses ports/N/state, such as "4: ACTIVE".
func parseState(s string) (state string, active bool) {
	num, name, ok := strings.Cut(s, ": ")
	if !ok {
		return s, false
	}
	return name, num == "4"
}

// parseLinkLayer parses ports/N/link_layer.
func parseLinkLayer(s string) uint8 {
	switch s {
	case "InfiniBand":
		return handshake.IBV_LINK_LAYER_INFINIBAND
	case "Ethernet":
		return handshake.IBV_LINK_LAYER_ETHERNET
	}
	return handshake.IBV_LINK_LAYER_UNSPECIFIED
}

// parsePCILink parses current_link_speed, such as "32.0 GT/s PCIe", and current_link_width, and returns Mb/s in one
// direction after the line encoding: 8b/10b up to 5 GT/s, 128b/130b up to 32, from 64 on 242 of the 256 bytes of a
// flit. It does not subtract the headers of the transaction layer, because these depend on the payload size.
func parsePCILink(speed, width string) (int, error) {
	f := strings.Fields(speed)
	if len(f) < 2 || f[1] != "GT/s" {
		return 0, fmt.Errorf("PCIe link speed %q: want a number and GT/s", speed)
	}
	gts, err := strconv.ParseFloat(f[0], 64)
	if err != nil || !(gts > 0 && gts <= 1024) {
		return 0, fmt.Errorf("PCIe link speed %q: want a number of GT/s above 0", speed)
	}
	lanes, err := strconv.ParseUint(width, 10, 8)
	if err != nil || lanes < 1 || lanes > 32 {
		return 0, fmt.Errorf("PCIe link width %q: want 1 to 32", width)
	}
	useful := 128. / 130
	switch {
	case gts <= 5:
		useful = 8. / 10
	case gts > 32:
		useful = 242. / 256
	}
	return int(gts * 1000 * useful * float64(lanes)), nil
}

// isPCIAddr reports whether s is the address of a PCI function, such as 0000:01:00.1. Domains may have more than four
// digits.
func isPCIAddr(s string) bool {
	domain, rest, ok := strings.Cut(s, ":")
	if !ok || len(domain) < 4 || !isHex(domain) || len(rest) != len("01:00.1") {
		return false
	}
	return isHex(rest[0:2]) && rest[2] == ':' && isHex(rest[3:5]) && rest[5] == '.' && rest[6] >= '0' && rest[6] <= '7'
}

func isHex(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f':
		default:
			return false
		}
	}
	return true
}
