package ncclnet

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"ncclmesh/transport"
	"ncclmesh/transport/topology"
	"ncclmesh/tuner"
)

// A config is what the environment says.
type config struct {
	transport transport.Options
	tuning    tuning
	level     slog.Level
}

// A variable is one environment variable that the plugin reads.
type variable struct {
	name     string
	fallback string // what holds when it is unset, for people
	unit     string
	meaning  string
	set      func(c *config, value string) error // the error says what is accepted
}

// variables is the whole configuration. A later one overrides an earlier one, so
// an older name of a setting stands before the present one.
var variables = []variable{
	{"NCCL_MESH_DEBUG", "info", "", "How much goes to NCCL's log: `warn`, `info`, `debug` or `trace` (or `0` to `3`). " +
		"All but warnings need `NCCL_DEBUG=INFO` too.",
		func(c *config, v string) (err error) { c.level, err = parseLevel(v); return }},

	{"NCCL_IB_HCA", "all ports", "", "RDMA ports to use: `[^][=]device[:port],…`; `^` excludes, `=` takes names as whole names instead of prefixes.",
		func(c *config, v string) (err error) { c.transport.HCA, err = topology.ParseHCA(v); return }},
	{"NCCL_SOCKET_IFNAME", "as NCCL", "", "Interfaces for setting connections up, most preferred first: `[^][=]name,…`. Those excluded carry no TCP lanes either.",
		func(c *config, v string) (err error) {
			c.transport.Interfaces, err = topology.ParseInterfaces(v)
			return
		}},
	{"NCCL_MESH_IFNAME", "all but those named in `NCCL_SOCKET_IFNAME`", "", "Interfaces that carry TCP lanes: `[^][=]name,…`.",
		func(c *config, v string) (err error) { c.transport.LaneIfs, err = topology.ParseInterfaces(v); return }},
	{"NCCL_SOCKET_FAMILY", "both", "", "Address family for setting connections up: `AF_INET` or `AF_INET6`.",
		func(c *config, v string) (err error) { c.transport.SocketFamily, err = parseFamily(v); return }},
	{"NCCL_HOSTID", "boot id and network namespace", "", "Names the node. Processes with different values are different nodes.",
		func(c *config, v string) error { c.transport.HostID = v; return nil }},

	{"NCCL_MESH_GID_INDEX", "-1", "", "Older name of `NCCL_IB_GID_INDEX`.",
		integer(-1, 65535, func(c *config) *int { return &c.transport.GIDs.Index })},
	{"NCCL_IB_GID_INDEX", "-1", "", "GID index of every RoCE port; -1 finds the right one. Indices differ between nodes and boots: prefer -1.",
		integer(-1, 65535, func(c *config) *int { return &c.transport.GIDs.Index })},
	{"NCCL_IB_ADDR_FAMILY", "AF_INET", "", "Address family preferred for RoCE: `AF_INET` or `AF_INET6`.",
		func(c *config, v string) (err error) { c.transport.GIDs.Family, err = parseFamily(v); return }},
	{"NCCL_IB_ADDR_RANGE", "all addresses", "", "RoCE addresses to use, as a prefix: `10.0.0.0/8`.",
		func(c *config, v string) (err error) { c.transport.GIDs.Range, err = parsePrefix(v); return }},
	{"NCCL_IB_ROCE_VERSION_NUM", "2", "", "RoCE version preferred: `1` or `2`.",
		integer(1, 2, func(c *config) *int { return &c.transport.GIDs.RoCE })},

	{"NCCL_IB_TC", "the communicator's, or 0", "", "Traffic class of RoCE packets; -1 is the default too.",
		integer(-1, 255, func(c *config) *int { return &c.transport.TrafficClass })},
	{"NCCL_IB_SL", "the communicator's traffic class, or 0", "", "InfiniBand service level; -1 is the default too.",
		integer(-1, 15, func(c *config) *int { return &c.transport.ServiceLevel })},
	{"NCCL_IB_PKEY", "0", "", "Index into the partition key table.",
		integer(0, 65535, func(c *config) *int { return &c.transport.PKeyIndex })},
	{"NCCL_IB_TIMEOUT", "14", "4.096 µs · 2^n", "How long a queue pair waits for an acknowledgement; more by default where `NCCL_MESH_TIME_SCALE` is set.",
		integer(0, 31, func(c *config) *int { return &c.transport.Timeout })},
	{"NCCL_IB_RETRY_CNT", "7", "", "How often a queue pair sends again before a lane counts as broken.",
		integer(0, 7, func(c *config) *int { return &c.transport.RetryCount })},
	{"NCCL_MESH_RNR_RETRY", "7", "", "Retries when a receiver is not ready, which does not happen; 0 makes it an error, for tests.",
		integer(0, 7, func(c *config) *int { return &c.transport.RNRRetry })},
	{"NCCL_IB_QPS_PER_CONNECTION", "1", "", "Queue pairs of a connection on every path; 32 in all at most.",
		integer(1, 128, func(c *config) *int { return &c.transport.QPsPerLane })},
	{"NCCL_IB_PCI_RELAXED_ORDERING", "2", "", "PCIe relaxed ordering for data: `0` off, `1` on, `2` where the device has it.",
		integer(0, 2, func(c *config) *int { return &c.transport.RelaxedOrdering })},
	{"NCCL_MESH_STRIPE_THRESHOLD", "65536", "bytes", "Messages below this size (over TCP: this size, at least 512 KiB, for each lane) go over one lane, larger ones over all.",
		integer(1, 1<<30, func(c *config) *int { return &c.transport.StripeThreshold })},

	{"NCCL_MESH_TRANSPORT", "auto", "", "`rdma`, `tcp`, or `auto`: RDMA between any two nodes where it works, else TCP.",
		func(c *config, v string) (err error) { c.transport.Transport, err = parseTransport(v); return }},
	{"NCCL_MESH_TCP_STREAMS", "0", "", "TCP connections of a connection on every path; 0 goes by the path's speed: 1 up to 10 Gb/s, 2 up to 25, 4 above.",
		integer(0, 32, func(c *config) *int { return &c.transport.TCPStreams })},
	{"NCCL_MESH_TCP_CHECK", "auto", "", "Whether what a TCP lane carries is authenticated: `1`, `0`, or `auto`: unless both addresses are on the link, in the interface's subnet or " +
		"link-local, and no default route leads out of it. One end that wants it is enough.",
		func(c *config, v string) (err error) { c.transport.TCPCheck, err = parseCheck(v); return }},

	{"NCCL_MESH_TUNER", "1", "", "`0` leaves algorithm, protocol and number of channels to NCCL. The same on all ranks.",
		func(c *config, v string) (err error) { c.tuning.off, err = parseOff(v); return }},
	{"NCCL_MESH_TOPOLOGY", "auto", "", "How the nodes are cabled, in the order of their ranks, for the tuner: `full` (a cable between every two), `ring`, `line`, or `auto`: full up to 3 nodes, then a ring. The same on all ranks.",
		func(c *config, v string) (err error) { c.tuning.topology, err = tuner.ParseTopology(v); return }},

	{"NCCL_MESH_LANE_WAIT", "10", "s", "How long a peer that is silent, as a whole or on a TCP lane, is waited for before NCCL gets an error.",
		duration(time.Second, func(c *config) *time.Duration { return &c.transport.LaneWait })},
	{"NCCL_MESH_PROOF_WAIT", "1000", "ms", "How long new lanes may take to pass their first packets once one between the two nodes has; until then `NCCL_MESH_LANE_WAIT` holds, as a slow process is no broken cable.",
		duration(time.Millisecond, func(c *config) *time.Duration { return &c.transport.ProofWait })},
	{"NCCL_MESH_TIME_SCALE", "1", "", "Multiplies every deadline, for emulated or very slow machines.",
		parseScale},
	{"NCCL_MESH_IBVERBS", "libibverbs.so.1,libibverbs.so", "", "The verbs library to load; a comma-separated list is tried in order.",
		func(c *config, v string) error { c.transport.Libraries = splitList(v); return nil }},
	{"NCCL_MESH_SYSFS", "/sys", "", "Where sysfs is looked for.",
		func(c *config, v string) error { c.transport.Sysfs = v; return nil }},
}

// defaultConfig is what holds with an empty environment. Fields left at zero or
// -1 take the transport's default.
func defaultConfig() config {
	return config{
		level: slog.LevelInfo,
		transport: transport.Options{
			GIDs:            topology.GIDPolicy{Index: -1, Family: 4, RoCE: 2},
			TrafficClass:    -1,
			ServiceLevel:    -1,
			Timeout:         -1,
			RetryCount:      -1,
			RNRRetry:        -1,
			RelaxedOrdering: 2,
		},
	}
}

// readConfig reads every variable. An empty value counts as unset. All values
// that do not parse are named in one error.
func readConfig(getenv func(string) string) (config, error) {
	c := defaultConfig()
	var errs []error
	for _, v := range variables {
		value := strings.TrimSpace(getenv(v.name))
		if value == "" {
			continue
		}
		if err := v.set(&c, value); err != nil {
			errs = append(errs, fmt.Errorf("%s=%q: %w; correct it or unset it", v.name, value, err))
		}
	}
	if len(errs) > 0 {
		return defaultConfig(), fmt.Errorf("%w: %w", errUsage, errors.Join(errs...))
	}
	return c, nil
}

// withTrafficClass applies the traffic class of a communicator where the
// environment names none. NCCL uses the one number for both fields.
func (c config) withTrafficClass(tc int) config {
	if tc < 0 {
		return c
	}
	if c.transport.TrafficClass < 0 {
		c.transport.TrafficClass = min(tc, 255)
	}
	if c.transport.ServiceLevel < 0 {
		c.transport.ServiceLevel = min(tc, 15)
	}
	return c
}

// unknownVariables returns a line for every NCCL_MESH_ name in environ that the
// plugin does not read.
func unknownVariables(environ []string) []string {
	var lines []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "NCCL_MESH_") {
			continue
		}
		nearest, best := "", len(name)+1
		for _, v := range variables {
			if !strings.HasPrefix(v.name, "NCCL_MESH_") {
				continue
			}
			d := editDistance(name, v.name)
			if d > 1 && strings.HasPrefix(v.name, name) {
				d = 1 // a name cut short
			}
			if d < best {
				nearest, best = v.name, d
			}
		}
		if best > 0 {
			lines = append(lines, fmt.Sprintf("%s is not a setting of this plugin and has no effect; did you mean %s?", name, nearest))
		}
	}
	return lines
}

// WriteVariables writes the configuration as the table that the README shows.
func WriteVariables(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| Variable | Default | Unit | Meaning |\n|---|---|---|---|\n")
	for _, v := range variables {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", v.name, v.fallback, v.unit, v.meaning)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// integer sets a whole number, decimal, octal or hexadecimal as in C.
func integer(lo, hi int, field func(*config) *int) func(*config, string) error {
	return func(c *config, v string) error {
		n, err := strconv.ParseInt(v, 0, 64)
		if err != nil || n < int64(lo) || n > int64(hi) {
			return fmt.Errorf("want a whole number from %d to %d", lo, hi)
		}
		*field(c) = int(n)
		return nil
	}
}

// duration sets a length of time given in units, fractions allowed.
func duration(unit time.Duration, field func(*config) *time.Duration) func(*config, string) error {
	return func(c *config, v string) error {
		most := float64(24*time.Hour) / float64(unit)
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || !(n > 0 && n <= most) {
			return fmt.Errorf("want a number above 0, up to %.0f, of units of %v", most, unit)
		}
		*field(c) = time.Duration(n * float64(unit))
		return nil
	}
}

func parseScale(c *config, v string) error {
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || !(n > 0 && n <= 1000) {
		return errors.New("want a number above 0, up to 1000")
	}
	c.transport.TimeScale = n
	return nil
}

func parseOff(v string) (bool, error) {
	switch v {
	case "0":
		return true, nil
	case "1":
		return false, nil
	}
	return false, errors.New("want 0 or 1")
}

func parseTransport(v string) (string, error) {
	switch v = strings.ToLower(v); v {
	case transport.TransportAuto, transport.TransportRDMA, transport.TransportTCP:
		return v, nil
	}
	return "", errors.New("want auto, rdma or tcp")
}

func parseCheck(v string) (string, error) {
	switch v = strings.ToLower(v); v {
	case transport.CheckAuto, transport.CheckOff, transport.CheckOn:
		return v, nil
	}
	return "", errors.New("want auto, 0 or 1")
}

func parseFamily(v string) (int, error) {
	switch strings.ToUpper(v) {
	case "AF_INET":
		return 4, nil
	case "AF_INET6":
		return 6, nil
	}
	return 0, errors.New("want AF_INET or AF_INET6")
}

func parsePrefix(v string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(v)
	if err != nil {
		return netip.Prefix{}, errors.New("want an address and a prefix length, as in 10.0.0.0/8 or fd00::/8")
	}
	return p, nil
}

func parseLevel(v string) (slog.Level, error) {
	switch strings.ToLower(v) {
	case "0", "warn":
		return slog.LevelWarn, nil
	case "1", "info":
		return slog.LevelInfo, nil
	case "2", "debug":
		return slog.LevelDebug, nil
	case "3", "trace":
		return levelTrace, nil
	}
	return 0, errors.New("want warn, info, debug or trace, or 0 to 3")
}

func splitList(v string) []string {
	var list []string
	for _, s := range strings.Split(v, ",") {
		if s = strings.TrimSpace(s); s != "" {
			list = append(list, s)
		}
	}
	return list
}

// editDistance is the least number of letters to insert, delete or replace to
// turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
