package netplan

import (
	"bytes"
	"net"
	"slices"
	"strings"
)

// A Function is a network interface of this node at the end of a cable, with those that answer there.
type Function struct {
	Name       string
	MAC        net.HardwareAddr
	Neighbours []net.HardwareAddr // in no order; those of this node may be among them
}

// A Cable is a function of this node and the one that it is paired with at the other end.
type Cable struct {
	Name        string
	MAC, Remote net.HardwareAddr
}

// maxFunctions is how many functions one end of a cable may have: a connector has two PCIe halves, and more is a switch.
const maxFunctions = 2

// Cables pairs the functions of this node with those at the other ends of their cables. Where both functions of a connector
// hear both of the other, they are paired in order of their addresses, in which the other end pairs them too. Functions that
// have no partner are left out; why says so, by name.
func Cables(functions []Function) (cables []Cable, why map[string]string) {
	why = map[string]string{}
	own := func(mac net.HardwareAddr) bool {
		return slices.ContainsFunc(functions, func(f Function) bool { return bytes.Equal(f.MAC, mac) })
	}
	ends := map[string][]Function{} // by those at the other end
	for _, f := range functions {
		f.Neighbours = sorted(slices.DeleteFunc(slices.Clone(f.Neighbours), own))
		switch n := len(f.Neighbours); {
		case n == 0:
			why[f.Name] = "no answer comes from the other end of its cable"
		case n > maxFunctions:
			why[f.Name] = "more functions answer than the other end of a cable has: it leads to a switch"
		default:
			key := text(f.Neighbours)
			ends[key] = append(ends[key], f)
		}
	}
	for _, here := range ends {
		slices.SortFunc(here, func(a, b Function) int { return bytes.Compare(a.MAC, b.MAC) })
		if len(here) > maxFunctions {
			for _, f := range here {
				why[f.Name] = "more of this node's functions see the same neighbours than a cable has: it leads to a switch"
			}
			continue
		}
		for i, f := range here {
			if i >= len(f.Neighbours) {
				why[f.Name] = "the other end has one function, which is paired with " + here[0].Name
				continue
			}
			cables = append(cables, Cable{f.Name, f.MAC, f.Neighbours[i]})
		}
	}
	slices.SortFunc(cables, func(a, b Cable) int { return strings.Compare(a.Name, b.Name) })
	return cables, why
}

func sorted(macs []net.HardwareAddr) []net.HardwareAddr {
	slices.SortFunc(macs, func(a, b net.HardwareAddr) int { return bytes.Compare(a, b) })
	return slices.CompactFunc(macs, func(a, b net.HardwareAddr) bool { return bytes.Equal(a, b) })
}

func text(macs []net.HardwareAddr) string {
	var b strings.Builder
	for _, mac := range macs {
		b.WriteString(mac.String() + " ")
	}
	return b.String()
}
