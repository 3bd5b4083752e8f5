package config

import (
	"strconv"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/discovery"
	"ncclmesh/transport/sock"
	"ncclmesh/transport/topology"
	"ncclmesh/tuner"
)

// A Variable is one environment variable that the plugin reads, as it is shown to users.
type Variable struct {
	Name    string
	Default string // the value when it is unset
	Unit    string
	Meaning string

	set func(c *Config, value string) error // the error tells which values are accepted
}

// Limits of the fields of a queue pair.
const (
	maxTrafficClass = 255
	maxServiceLevel = 15
)

// oldNames are former names of variables. They are read if the present name is unset.
var oldNames = map[string]string{"NCCL_IB_GID_INDEX": "NCCL_MESH_GID_INDEX"}

// variables is the whole configuration.
var variables = []Variable{
	{"NCCL_MESH_DEBUG", "info", "", "Log level: `warn`, `info`, `debug` or `trace` (or `0` to `3`). Everything but warnings " +
		"needs `NCCL_DEBUG=INFO` too.",
		func(c *Config, v string) (err error) { c.Level, err = parseLevel(v); return }},

	{"NCCL_IB_HCA", "all ports", "", "RDMA ports to use: `[^][=]device[:port],…`. `^` excludes; `=` matches whole names instead of prefixes.",
		func(c *Config, v string) (err error) { c.Transport.HCA, err = topology.ParseHCA(v); return }},
	{"NCCL_SOCKET_IFNAME", "as NCCL", "", "Network interfaces for setting connections up, most preferred first: `[^][=]name,…`. Excluded interfaces carry no TCP lanes either.",
		func(c *Config, v string) (err error) {
			c.Transport.Interfaces, err = topology.ParseInterfaces(v)
			return
		}},
	{"NCCL_MESH_IFNAME", "all but those named in `NCCL_SOCKET_IFNAME`", "", "Network interfaces that carry TCP lanes: `[^][=]name,…`. Unset, a network that is not a cable to the peer alone carries lanes only when nothing else does.",
		func(c *Config, v string) (err error) { c.Transport.LaneIfs, err = topology.ParseInterfaces(v); return }},
	{"NCCL_SOCKET_FAMILY", "both", "", "Address family for setting connections up: `AF_INET` or `AF_INET6`.",
		func(c *Config, v string) (err error) { c.Transport.SocketFamily, err = parseFamily(v); return }},
	{"NCCL_MESH_PORTS", "any", "", "Ports that the plugin's sockets keep to, for firewalls: `first-last`, as in `50000-50999`. TCP connections come to one of them, from one of them. UDP port " + strconv.Itoa(discovery.UDPPort) + " is used beside; see [firewalls](configuration.md#firewalls).",
		func(c *Config, v string) (err error) {
			c.Transport.PortRange, err = sock.ParsePortRange(v)
			return
		}},
	{"NCCL_HOSTID", "boot id and network namespace", "", "Names the node. Processes with different values are different nodes.",
		func(c *Config, v string) error { c.Transport.HostID = v; return nil }},

	{"NCCL_IB_GID_INDEX", "-1", "", "GID index of every RoCE port; -1 selects it automatically. Indices differ between nodes and boots: prefer -1.",
		integer(-1, 65535, func(c *Config) *int { return &c.Transport.GIDs.Index })},
	{"NCCL_IB_ADDR_FAMILY", "AF_INET", "", "Preferred address family for RoCE: `AF_INET` or `AF_INET6`.",
		func(c *Config, v string) (err error) { c.Transport.GIDs.Family, err = parseFamily(v); return }},
	{"NCCL_IB_ADDR_RANGE", "all addresses", "", "RoCE addresses to use, as a prefix: `10.0.0.0/8`.",
		func(c *Config, v string) (err error) { c.Transport.GIDs.Range, err = parsePrefix(v); return }},
	{"NCCL_IB_ROCE_VERSION_NUM", "2", "", "Preferred RoCE version: `1` or `2`.",
		integer(1, 2, func(c *Config) *int { return &c.Transport.GIDs.RoCE })},

	{"NCCL_IB_TC", "the communicator's, or 0", "", "Traffic class of RoCE packets; -1 means the default.",
		integer(-1, maxTrafficClass, func(c *Config) *int { return &c.Transport.TrafficClass })},
	{"NCCL_IB_SL", "the communicator's traffic class, or 0", "", "InfiniBand service level; -1 means the default.",
		integer(-1, maxServiceLevel, func(c *Config) *int { return &c.Transport.ServiceLevel })},
	{"NCCL_IB_PKEY", "0", "", "Index into the partition key table.",
		integer(0, 65535, func(c *Config) *int { return &c.Transport.PKeyIndex })},
	{"NCCL_IB_TIMEOUT", "14", "4.096 µs · 2^n", "How long a queue pair waits for an acknowledgement; the default is larger where `NCCL_MESH_TIME_SCALE` is set.",
		integer(0, 31, func(c *Config) *int { return &c.Transport.Timeout })},
	{"NCCL_IB_RETRY_CNT", "7", "", "How often a queue pair retransmits before its lane counts as failed.",
		integer(0, 7, func(c *Config) *int { return &c.Transport.RetryCount })},
	{"NCCL_MESH_RNR_RETRY", "7", "", "Retries when a receiver is not ready. The protocol never needs one; 0 makes it an error, for tests.",
		integer(0, 7, func(c *Config) *int { return &c.Transport.RNRRetry })},
	{"NCCL_IB_QPS_PER_CONNECTION", "1", "", "Queue pairs of a connection on each path; at most " + strconv.Itoa(handshake.MaxLanes) + " in all.",
		integer(1, 128, func(c *Config) *int { return &c.Transport.QPsPerPath })},
	{"NCCL_IB_PCI_RELAXED_ORDERING", "2", "", "PCIe relaxed ordering for data: `0` off, `1` on, `2` on where the device supports it.",
		integer(0, 2, func(c *Config) *int { return &c.Transport.RelaxedOrdering })},
	{"NCCL_IB_ECE_ENABLE", "1", "", "`1` lets the adapters at both ends of a queue pair agree on options beyond the standard (enhanced connection establishment, ECE), where both know it. `0` on one of two nodes is enough to do without.",
		func(c *Config, v string) (err error) { c.Transport.NoECE, err = parseOff(v); return }},
	{"NCCL_IB_DATA_DIRECT", "1", "", "`1`: where every adapter has a PCIe function of its own for GPU memory (Data Direct, from ConnectX-8 on), DMA-BUFs of that memory are registered for it. `0`: for the usual function. `2` is the same as `1`.",
		func(c *Config, v string) (err error) { c.Transport.NoDataDirect, err = parseDataDirect(v); return }},
	{"NCCL_MESH_STRIPE_THRESHOLD", "65536", "bytes", "Messages below this size go over one lane, larger ones are split over all lanes. Over TCP the size counts for each lane, and is at least 512 KiB.",
		integer(1, 1<<30, func(c *Config) *int { return &c.Transport.StripeThreshold })},

	{"NCCL_MESH_TRANSPORT", "auto", "", "`rdma`, `tcp`, or `auto`: RDMA between any two nodes where it works, else TCP.",
		func(c *Config, v string) (err error) { c.Transport.Transport, err = parseTransport(v); return }},
	{"NCCL_MESH_GDR", "auto", "", "Whether NCCL is offered GPU memory that adapters reach without a copy in host memory: see [GPU memory](gpudirect.md). `auto`: where CUDA, the driver and the adapters can, " +
		"and `NCCL_MESH_TRANSPORT` is `rdma`. `0`: never. `1`: the plugin fails unless it can, and no lanes over TCP are used.",
		func(c *Config, v string) (err error) { c.GDR, err = parseGDR(v); return }},
	{"NCCL_MESH_TCP_STREAMS", "0", "", "TCP sockets of a connection on each path; 0 chooses by the speed of the path: 1 up to 10 Gb/s, 2 up to 25 Gb/s, 4 above.",
		integer(0, handshake.MaxLanes, func(c *Config) *int { return &c.Transport.TCPStreams })},
	{"NCCL_MESH_TCP_CHECK", "auto", "", "Whether the data of a TCP lane is authenticated: `1`, `0`, or `auto`, which authenticates unless both addresses are on the cable " +
		"(in the interface's subnet, or link-local) and the interface has no default route. It is enough that one end asks for it.",
		func(c *Config, v string) (err error) { c.Transport.TCPCheck, err = parseCheck(v); return }},

	{"NCCL_MESH_RELAY", "auto", "", "`auto`: nodes that share no cable talk through the nodes between them, and this process relays for other nodes. `0`: neither; set it on all ranks. " +
		"`only`, for tests: direct paths are not used.",
		func(c *Config, v string) (err error) { c.Transport.Relay, err = parseRelay(v); return }},
	{"NCCL_MESH_KEY", "none", "", "A secret that all nodes share, of " + strconv.Itoa(MinKey) + " characters or more: `" + MakeKey + "` makes one. A node without it neither relays nor is relayed for. When no key is set, every machine at the other end of a cable may do both.",
		func(c *Config, v string) error { c.Transport.Key = v; return CheckKey(v) }},
	{"NCCL_MESH_ROUTE_WAIT", "60", "s", "How long two nodes that share no cable wait for a route, while neighbours are up through which one may still appear.",
		duration(time.Second, func(c *Config) *time.Duration { return &c.Transport.RouteWait })},
	{"NCCL_MESH_RELAY_MEMORY", "256", "MiB", "Memory that this process may use to relay RDMA traffic of other nodes.",
		integer(1, 1<<20, func(c *Config) *int { return &c.Transport.RelayMemory })},

	{"NCCL_MESH_TUNER", "1", "", "`0` leaves algorithm, protocol and number of channels to NCCL. Must be the same on all ranks.",
		func(c *Config, v string) (err error) { c.Tuning.Off, err = parseOff(v); return }},
	{"NCCL_MESH_TOPOLOGY", "auto", "", "Cabling of the nodes, in the order of their ranks, for the tuner: `full` (a cable between every two), `ring`, `line`, or `auto`: full up to 3 nodes, then a ring. Must be the same on all ranks.",
		func(c *Config, v string) (err error) { c.Tuning.Topology, err = tuner.ParseTopology(v); return }},

	{"NCCL_MESH_LANE_WAIT", "10", "s", "How long a connection waits for a silent peer, or for a lane when it has none left, before NCCL gets an error: see [failover](failover.md).",
		duration(time.Second, func(c *Config) *time.Duration { return &c.Transport.LaneWait })},
	{"NCCL_MESH_PROOF_WAIT", "1000", "ms", "How long new lanes may take to pass their first packets, once one lane between the two nodes has passed some. It is extended while the peer's process does not answer. Before the first lane, `NCCL_MESH_LANE_WAIT` applies, because a slow process is not a broken cable.",
		duration(time.Millisecond, func(c *Config) *time.Duration { return &c.Transport.ProofWait })},
	{"NCCL_MESH_TIME_SCALE", "1", "", "Multiplies every time limit, for emulated or very slow machines.",
		parseScale},
	{"NCCL_MESH_STATUS", "an abstract socket", "", "Where `ncclmesh status` and `ncclmesh metrics` find this process: the path of a socket, or of a directory for one. `0` disables it.",
		func(c *Config, v string) error { c.Transport.Status = v; return nil }},
	{"NCCL_MESH_IBVERBS", "libibverbs.so.1,libibverbs.so", "", "The verbs library to load; a comma-separated list is tried in order.",
		func(c *Config, v string) error { c.Transport.Libraries = splitList(v); return nil }},
	{"NCCL_MESH_SYSFS", "/sys", "", "Where sysfs is mounted.",
		func(c *Config, v string) error { c.Transport.Sysfs = v; return nil }},
}
