package ncclnet

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ncclmesh/transport"
	"ncclmesh/transport/topology"
	"ncclmesh/tuner"
)

func envOf(env map[string]string) func(string) string {
	return func(name string) string { return env[name] }
}

// compareOptions leaves out what has no comparable form: the filters are tested
// where they are parsed.
var compareOptions = cmp.Options{
	cmp.AllowUnexported(config{}, tuning{}),
	cmpopts.IgnoreTypes(topology.HCAFilter{}, topology.IfFilter{}, &slog.Logger{}),
	cmpopts.EquateComparable(netip.Prefix{}),
}

func TestReadConfig(t *testing.T) {
	defaults := defaultConfig()
	with := func(change func(*config)) config {
		c := defaults
		change(&c)
		return c
	}
	tests := []struct {
		name string
		env  map[string]string
		want config
	}{
		{"empty", nil, defaults},
		{"empty strings are unset", map[string]string{"NCCL_IB_GID_INDEX": "", "NCCL_IB_TC": " "}, defaults},
		{"numbers", map[string]string{
			"NCCL_IB_TC": "0x60", "NCCL_IB_SL": "3", "NCCL_IB_PKEY": "1", "NCCL_IB_TIMEOUT": "20", "NCCL_IB_RETRY_CNT": "5",
			"NCCL_MESH_RNR_RETRY": "0", "NCCL_IB_QPS_PER_CONNECTION": "4", "NCCL_IB_PCI_RELAXED_ORDERING": "0",
			"NCCL_MESH_STRIPE_THRESHOLD": "131072", "NCCL_IB_ROCE_VERSION_NUM": "1",
		}, with(func(c *config) {
			o := &c.transport
			o.TrafficClass, o.ServiceLevel, o.PKeyIndex, o.Timeout, o.RetryCount = 0x60, 3, 1, 20, 5
			o.RNRRetry, o.QPsPerLane, o.RelaxedOrdering, o.StripeThreshold, o.GIDs.RoCE = 0, 4, 0, 131072, 1
		})},
		{"times", map[string]string{
			"NCCL_MESH_LANE_WAIT": "2.5", "NCCL_MESH_PROOF_WAIT": "300", "NCCL_MESH_TIME_SCALE": "10",
		}, with(func(c *config) {
			c.transport.LaneWait, c.transport.ProofWait = 2500*time.Millisecond, 300*time.Millisecond
			c.transport.TimeScale = 10
		})},
		{"addresses", map[string]string{
			"NCCL_IB_ADDR_FAMILY": "AF_INET6", "NCCL_IB_ADDR_RANGE": "fd00::/8", "NCCL_SOCKET_FAMILY": "AF_INET",
		}, with(func(c *config) {
			c.transport.GIDs.Family, c.transport.GIDs.Range = 6, netip.MustParsePrefix("fd00::/8")
			c.transport.SocketFamily = 4
		})},
		{"TCP", map[string]string{"NCCL_MESH_TRANSPORT": "TCP", "NCCL_MESH_TCP_STREAMS": "3", "NCCL_MESH_TCP_CHECK": "Auto"}, with(func(c *config) {
			c.transport.TCPCheck = transport.CheckAuto
			c.transport.Transport, c.transport.TCPStreams = transport.TransportTCP, 3
		})},
		{"tuner", map[string]string{"NCCL_MESH_TUNER": "0", "NCCL_MESH_TOPOLOGY": "Line"}, with(func(c *config) {
			c.tuning = tuning{off: true, topology: tuner.LineOfCables}
		})},
		{"tuner's defaults", map[string]string{"NCCL_MESH_TUNER": "1", "NCCL_MESH_TOPOLOGY": "auto"}, defaults},
		{"older name", map[string]string{"NCCL_MESH_GID_INDEX": "3"},
			with(func(c *config) { c.transport.GIDs.Index = 3 })},
		{"present name over older", map[string]string{"NCCL_IB_GID_INDEX": "5", "NCCL_MESH_GID_INDEX": "3"},
			with(func(c *config) { c.transport.GIDs.Index = 5 })},
		{"paths", map[string]string{
			"NCCL_MESH_IBVERBS": "/opt/a.so, /opt/b.so,", "NCCL_MESH_SYSFS": "/tmp/sys", "NCCL_HOSTID": "n1",
		}, with(func(c *config) {
			c.transport.Libraries = []string{"/opt/a.so", "/opt/b.so"}
			c.transport.Sysfs, c.transport.HostID = "/tmp/sys", "n1"
		})},
		{"debug by number", map[string]string{"NCCL_MESH_DEBUG": "2"}, with(func(c *config) { c.level = slog.LevelDebug })},
		{"debug by name", map[string]string{"NCCL_MESH_DEBUG": "Trace"}, with(func(c *config) { c.level = levelTrace })},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := readConfig(envOf(tt.env))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, compareOptions); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadConfigFilters(t *testing.T) {
	c, err := readConfig(envOf(map[string]string{"NCCL_IB_HCA": "^mlx5_2:1"}))
	if err != nil {
		t.Fatal(err)
	}
	if !c.transport.HCA.Match("mlx5_0", 1) || c.transport.HCA.Match("mlx5_2", 1) {
		t.Error("NCCL_IB_HCA did not reach the options")
	}
}

func TestConfigErrors(t *testing.T) {
	tests := []struct{ name, value, want string }{
		{"NCCL_MESH_DEBUG", "loud", `NCCL_MESH_DEBUG="loud": want warn, info, debug or trace, or 0 to 3`},
		{"NCCL_IB_GID_INDEX", "x", `NCCL_IB_GID_INDEX="x": want a whole number from -1 to 65535`},
		{"NCCL_IB_TC", "256", `NCCL_IB_TC="256": want a whole number from -1 to 255`},
		{"NCCL_IB_TIMEOUT", "32", `NCCL_IB_TIMEOUT="32": want a whole number from 0 to 31`},
		{"NCCL_IB_TIMEOUT", "14s", `NCCL_IB_TIMEOUT="14s": want a whole number from 0 to 31`},
		{"NCCL_IB_RETRY_CNT", "99999999999999999999", `NCCL_IB_RETRY_CNT="99999999999999999999": want a whole number from 0 to 7`},
		{"NCCL_MESH_TRANSPORT", "udp", `NCCL_MESH_TRANSPORT="udp": want auto, rdma or tcp`},
		{"NCCL_MESH_TCP_CHECK", "yes", `NCCL_MESH_TCP_CHECK="yes": want auto, 0 or 1`},
		{"NCCL_MESH_TCP_STREAMS", "33", `NCCL_MESH_TCP_STREAMS="33": want a whole number from 0 to 32`},
		{"NCCL_MESH_TUNER", "off", `NCCL_MESH_TUNER="off": want 0 or 1`},
		{"NCCL_MESH_TOPOLOGY", "rign", `NCCL_MESH_TOPOLOGY="rign": want auto, full, ring or line`},
		{"NCCL_MESH_LANE_WAIT", "0", `NCCL_MESH_LANE_WAIT="0": want a number above 0, up to 86400, of units of 1s`},
		{"NCCL_MESH_LANE_WAIT", "NaN", `NCCL_MESH_LANE_WAIT="NaN": want a number above 0, up to 86400, of units of 1s`},
		{"NCCL_MESH_TIME_SCALE", "-1", `NCCL_MESH_TIME_SCALE="-1": want a number above 0, up to 1000`},
		{"NCCL_SOCKET_FAMILY", "inet", `NCCL_SOCKET_FAMILY="inet": want AF_INET or AF_INET6`},
		{"NCCL_IB_ADDR_RANGE", "10.0.0.1", `NCCL_IB_ADDR_RANGE="10.0.0.1": want an address and a prefix length, as in 10.0.0.0/8 or fd00::/8`},
		{"NCCL_IB_HCA", "mlx5_0:one", `NCCL_IB_HCA="mlx5_0:one": `},
	}
	for _, tt := range tests {
		_, err := readConfig(envOf(map[string]string{tt.name: tt.value}))
		if err == nil || !errors.Is(err, errUsage) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s=%s: %v\nwant %s", tt.name, tt.value, err, tt.want)
		}
	}
	_, err := readConfig(envOf(map[string]string{"NCCL_IB_TC": "a", "NCCL_IB_SL": "b"}))
	if err == nil || !strings.Contains(err.Error(), "NCCL_IB_TC") || !strings.Contains(err.Error(), "NCCL_IB_SL") {
		t.Errorf("two bad values: %v", err)
	}
}

func TestUnknownVariables(t *testing.T) {
	got := unknownVariables([]string{
		"NCCL_MESH_DEBUG=1", "NCCL_MESH_LANES_WAIT=3", "NCCL_MESH_STRIPE=1", "NCCL_IB_NONSENSE=1", "PATH=/bin",
		"NCCL_MESH_GID_INDEX=3",
	})
	want := []string{
		"NCCL_MESH_LANES_WAIT is not a setting of this plugin and has no effect; did you mean NCCL_MESH_LANE_WAIT?",
		"NCCL_MESH_STRIPE is not a setting of this plugin and has no effect; did you mean NCCL_MESH_STRIPE_THRESHOLD?",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The defaults that people read are the ones that hold.
func TestWrittenDefaultsParse(t *testing.T) {
	for _, v := range variables {
		c := defaultConfig()
		switch v.fallback {
		case "all ports", "as NCCL", "both", "all addresses", "boot id and network namespace",
			"the communicator's, or 0", "the communicator's traffic class, or 0", "all but those named in `NCCL_SOCKET_IFNAME`":
			continue // a word for the absence of the setting
		}
		if err := v.set(&c, v.fallback); err != nil {
			t.Errorf("%s: the default %q: %v", v.name, v.fallback, err)
		}
	}
}

func TestWriteVariables(t *testing.T) {
	var b bytes.Buffer
	if err := WriteVariables(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != len(variables)+2 {
		t.Errorf("%d lines for %d variables", len(lines), len(variables))
	}
	for i, line := range lines {
		if n := strings.Count(line, "|"); n != 5 {
			t.Errorf("line %d has %d bars: %s", i, n, line)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add("14")
	f.Add("^=mlx5_0:1,mlx5_1")
	f.Add("fd00::/8")
	f.Add("1e400")
	f.Fuzz(func(t *testing.T, value string) {
		c, err := readConfig(func(string) string { return value })
		if err != nil {
			if !errors.Is(err, errUsage) {
				t.Errorf("%q: %v", value, err)
			}
			return
		}
		if c.transport.TimeScale < 0 || c.transport.LaneWait < 0 {
			t.Errorf("%q: %+v", value, c)
		}
	})
}
