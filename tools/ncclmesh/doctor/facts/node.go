package facts

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/topology"
)

// Schema names the shape of a Node.
const Schema = "ncclmesh.facts/2"

// Node is what one node knows of itself.
type Node struct {
	Schema string `json:"schema"`
	Name   string `json:"name"` // what people call it, the same in all findings

	Build     string              `json:"build"` // of the command that looked
	Arch      string              `json:"arch"`  // as Go calls it
	Kernel    Fact[string]        `json:"kernel"`
	Uptime    Fact[time.Duration] `json:"uptime"`
	MachineID Fact[string]        `json:"machine_id"`
	DMI       Fact[[]string]      `json:"dmi"`     // what the maker calls the machine
	Modules   Fact[[]string]      `json:"modules"` // of the kernel, that are loaded
	Memory    Memory              `json:"memory"`

	Topology  Fact[topology.Node]     `json:"topology"`  // ports and interfaces
	Functions Fact[[]string]          `json:"functions"` // PCI addresses of adapters of a maker whose adapters do RDMA
	Adapters  []Adapter               `json:"adapters"`  // of Topology's RDMA ports
	Library   Fact[string]            `json:"library"`   // libibverbs: what it is, once it was loaded
	Wireless  Fact[[]string]          `json:"wireless"`  // interfaces that are radios
	Carrier   Fact[map[string]Flaps]  `json:"carrier"`   // of ports' interfaces
	Routes    Fact[[]Route]           `json:"routes"`    // of all tables
	Neighbour Fact[[]Neighbour]       `json:"neighbour"` // the hardware addresses that the kernel sends to
	Shapers   Fact[[]Shaper]          `json:"shapers"`   // queueing disciplines that hold traffic back, or lose some of it
	HostName  Fact[HostName]          `json:"host_name"`
	Outward   Fact[netip.Addr]        `json:"outward"`   // the node's address towards the world, which frameworks tell other nodes; none: no such route
	Owners    Fact[map[string][]File] `json:"owners"`    // who configures which interface
	Bootstrap Fact[[]netip.Addr]      `json:"bootstrap"` // where others may reach the node, the best first

	Process Process `json:"process"` // whose environment counts
	Shell   bool    `json:"shell"`   // that is the environment of the command itself, while other nodes have what ssh gives them

	Loops   Fact[[][2]string] `json:"loops"`   // interfaces of the node that hear one another, and are not of one cage
	Dials   Fact[[]Dial]      `json:"dials"`   // of all other nodes
	Lookups Fact[[]Lookup]    `json:"lookups"` // to the addresses of other nodes' interfaces in subnets of this one's
	Ahead   Fact[Ahead]       `json:"ahead"`
	Sample  Fact[Sample]      `json:"sample"` // of counters, while data moved
}

// Memory is the node's, in bytes.
type Memory struct {
	Available Fact[uint64] `json:"available"`
	CMA       Fact[uint64] `json:"cma"` // reserved for contiguous allocations
}

// Adapter is what an RDMA device says beyond its ports.
type Adapter struct {
	Device   string        `json:"device"`
	Firmware Fact[string]  `json:"firmware"`
	Board    Fact[string]  `json:"board"` // devices with the same one may be compared
	PCIe     Fact[PCIe]    `json:"pcie"`
	Fatal    Fact[uint64]  `json:"fatal"` // errors of its PCIe link that were fatal
	Speed    Fact[int]     `json:"speed"` // of its interface, Mb/s
	Open     Try           `json:"open"`
	Small    Try           `json:"small"` // a registration of a few bytes
	Large    Try           `json:"large"` // one beyond the limit of locked memory, 64 MiB at most
	MTU      map[uint8]int `json:"mtu"`   // active MTU of its ports, bytes
}

// PCIe is a link as it is, and as it could be by what its two ends can do.
type PCIe struct {
	Function string  `json:"function"`
	GTs      float64 `json:"gts"` // GT/s of a lane
	Width    int     `json:"width"`
	MaxGTs   float64 `json:"max_gts"`
	MaxWidth int     `json:"max_width"`
}

// Try is what came of something that was tried.
type Try struct {
	Done  bool   `json:"done"`
	Bytes int    `json:"bytes,omitempty"`
	Errno int    `json:"errno,omitempty"`
	Error string `json:"error,omitempty"` // "" where it worked
	Why   string `json:"why,omitempty"`   // it was not tried
}

// OK reports whether it was tried and worked.
func (t Try) OK() bool { return t.Done && t.Error == "" }

// Failed reports whether it was tried and did not.
func (t Try) Failed() bool { return t.Done && t.Error != "" }

// Route is a way to a prefix, default routes left out.
type Route struct {
	Dst netip.Prefix `json:"dst"`
	Dev string       `json:"dev"`
}

// Lookup is where the kernel would send packets to an address of another node.
type Lookup struct {
	Node string     `json:"node"`
	Addr netip.Addr `json:"addr"`
	Dev  string     `json:"dev"` // "": nowhere, for the reason in Try
	Try  Try        `json:"try"`
	Dial Try        `json:"dial"` // a connection to it
}

// Neighbour is an entry of the kernel's table of hardware addresses.
type Neighbour struct {
	Dev       string     `json:"dev"`
	Addr      netip.Addr `json:"addr"`
	MAC       [6]byte    `json:"mac"`
	Permanent bool       `json:"permanent"` // somebody put it there; others are as the neighbour answered a moment ago
}

// Shaper is a queueing discipline of an interface that holds packets back or drops them.
type Shaper struct {
	Dev  string `json:"dev"`
	Kind string `json:"kind"` // as tc calls it
}

// HostName is the node's name for itself, and what its file of hosts has for it.
type HostName struct {
	Name  string       `json:"name"`
	Addrs []netip.Addr `json:"addrs"`
}

// Flaps are how often an interface gained or lost its carrier.
type Flaps struct {
	Total uint64 `json:"total"` // since the interface is there
	Now   uint64 `json:"now"`   // of them while the node was looked at
}

// Ahead is how far a node's clock is ahead of that of the node that asks: no less and no more than that.
type Ahead struct {
	Least time.Duration `json:"least"`
	Most  time.Duration `json:"most"`
}

// File is a file that configures an interface.
type File struct {
	Path  string `json:"path"`
	Owner string `json:"owner"` // NetworkManager, netplan, systemd-networkd, ifupdown
	Gone  bool   `json:"gone"`  // at the next boot
}

// Tried is what an attempt with so many bytes has returned.
func Tried(bytes int, err error) Try {
	t := Try{Done: true, Bytes: bytes}
	if err != nil {
		t.Error = fault.OneLine(err)
		var errno syscall.Errno
		if errors.As(err, &errno) { // which says it in fewer words
			t.Errno, t.Error = int(errno), fmt.Sprintf("%s: %v", unix.ErrnoName(errno), errno)
		}
	}
	return t
}
