package config

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ncclmesh/ncclnet/gpudirect"
	"ncclmesh/transport"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/lane/tcp"
	"ncclmesh/transport/sock"
	"ncclmesh/transport/topology"
	"ncclmesh/tuner"
)

func envOf(env map[string]string) func(string) string {
	return func(name string) string { return env[name] }
}

// compareOptions ignores the fields that cannot be compared: the tests of their parsers cover the filters.
var compareOptions = cmp.Options{
	cmpopts.IgnoreTypes(topology.HCAFilter{}, topology.IfFilter{}, &slog.Logger{}),
	cmpopts.EquateComparable(netip.Prefix{}, clock.Clock{}),
}

func TestRead(t *testing.T) {
	defaults := Default()
	with := func(change func(*Config)) Config {
		c := defaults
		change(&c)
		return c
	}
	tests := []struct {
		name string
		env  map[string]string
		want Config
	}{
		{"empty", nil, defaults},
		{"empty strings are unset", map[string]string{"NCCL_IB_GID_INDEX": "", "NCCL_IB_TC": " "}, defaults},
		{"numbers", map[string]string{
			"NCCL_IB_TC": "0x60", "NCCL_IB_SL": "3", "NCCL_IB_PKEY": "1", "NCCL_IB_TIMEOUT": "20", "NCCL_IB_RETRY_CNT": "5",
			"NCCL_MESH_RNR_RETRY": "0", "NCCL_IB_QPS_PER_CONNECTION": "4", "NCCL_IB_PCI_RELAXED_ORDERING": "0", "NCCL_IB_ECE_ENABLE": "0", "NCCL_IB_DATA_DIRECT": "0",
			"NCCL_MESH_STRIPE_THRESHOLD": "131072", "NCCL_IB_ROCE_VERSION_NUM": "1",
		}, with(func(c *Config) {
			o := &c.Transport
			o.TrafficClass, o.ServiceLevel, o.PKeyIndex, o.Timeout, o.RetryCount = 0x60, 3, 1, 20, 5
			o.RNRRetry, o.QPsPerPath, o.RelaxedOrdering, o.NoECE, o.NoDataDirect, o.StripeThreshold, o.GIDs.RoCE = 0, 4, 0, true, true, 131072, 1
		})},
		{"times", map[string]string{
			"NCCL_MESH_LANE_WAIT": "2.5", "NCCL_MESH_PROOF_WAIT": "300", "NCCL_MESH_TIME_SCALE": "10",
		}, with(func(c *Config) {
			c.Transport.LaneWait, c.Transport.ProofWait = 2500*time.Millisecond, 300*time.Millisecond
			c.Transport.TimeScale = 10
		})},
		{"addresses", map[string]string{
			"NCCL_IB_ADDR_FAMILY": "AF_INET6", "NCCL_IB_ADDR_RANGE": "fd00::/8", "NCCL_SOCKET_FAMILY": "AF_INET",
		}, with(func(c *Config) {
			c.Transport.GIDs.Family, c.Transport.GIDs.Range = 6, netip.MustParsePrefix("fd00::/8")
			c.Transport.SocketFamily = 4
		})},
		{"TCP", map[string]string{"NCCL_MESH_TRANSPORT": "TCP", "NCCL_MESH_TCP_STREAMS": "3", "NCCL_MESH_TCP_CHECK": "Auto"}, with(func(c *Config) {
			c.Transport.TCPCheck = tcp.CheckAuto
			c.Transport.Transport, c.Transport.TCPStreams = transport.TransportTCP, 3
		})},
		{"GPU memory", map[string]string{"NCCL_MESH_GDR": "0"}, with(func(c *Config) { c.GDR = gpudirect.Off })},
		{"GPU memory by default", map[string]string{"NCCL_MESH_GDR": "Auto", "NCCL_MESH_TRANSPORT": "auto"}, with(func(c *Config) {
			c.Transport.Transport = transport.TransportAuto
		})},
		{"GPU memory demanded", map[string]string{"NCCL_MESH_GDR": "1"}, with(func(c *Config) {
			c.GDR, c.TCPLeftOut, c.Transport.Transport = gpudirect.On, true, transport.TransportRDMA
		})},
		{"GPU memory demanded of auto", map[string]string{"NCCL_MESH_GDR": "1", "NCCL_MESH_TRANSPORT": "auto"}, with(func(c *Config) {
			c.GDR, c.TCPLeftOut, c.Transport.Transport = gpudirect.On, true, transport.TransportRDMA
		})},
		{"GPU memory demanded of RDMA", map[string]string{"NCCL_MESH_GDR": "1", "NCCL_MESH_TRANSPORT": "rdma"}, with(func(c *Config) {
			c.GDR, c.Transport.Transport = gpudirect.On, transport.TransportRDMA
		})},
		{"GPU memory unwanted over TCP", map[string]string{"NCCL_MESH_GDR": "0", "NCCL_MESH_TRANSPORT": "tcp"}, with(func(c *Config) {
			c.GDR, c.Transport.Transport = gpudirect.Off, transport.TransportTCP
		})},
		{"ports", map[string]string{"NCCL_MESH_PORTS": "50000-50999"}, with(func(c *Config) {
			c.Transport.PortRange = sock.PortRange{First: 50000, Last: 50999}
		})},
		{"tuner", map[string]string{"NCCL_MESH_TUNER": "0", "NCCL_MESH_TOPOLOGY": "Line"}, with(func(c *Config) {
			c.Tuning = Tuning{Off: true, Topology: tuner.LineOfCables}
		})},
		{"tuner's defaults", map[string]string{"NCCL_MESH_TUNER": "1", "NCCL_MESH_TOPOLOGY": "auto"}, defaults},
		{"older name", map[string]string{"NCCL_MESH_GID_INDEX": "3"},
			with(func(c *Config) { c.Transport.GIDs.Index = 3 })},
		{"present name over older", map[string]string{"NCCL_IB_GID_INDEX": "5", "NCCL_MESH_GID_INDEX": "3"},
			with(func(c *Config) { c.Transport.GIDs.Index = 5 })},
		{"paths", map[string]string{
			"NCCL_MESH_IBVERBS": "/opt/a.so, /opt/b.so,", "NCCL_MESH_SYSFS": "/tmp/sys", "NCCL_HOSTID": "n1",
		}, with(func(c *Config) {
			c.Transport.Libraries = []string{"/opt/a.so", "/opt/b.so"}
			c.Transport.Sysfs, c.Transport.HostID = "/tmp/sys", "n1"
		})},
		{"debug by number", map[string]string{"NCCL_MESH_DEBUG": "2"}, with(func(c *Config) { c.Level = slog.LevelDebug })},
		{"debug by name", map[string]string{"NCCL_MESH_DEBUG": "Trace"}, with(func(c *Config) { c.Level = LevelTrace })},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Read(envOf(tt.env))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, compareOptions); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadFilters(t *testing.T) {
	c, err := Read(envOf(map[string]string{"NCCL_IB_HCA": "^mlx5_2:1"}))
	if err != nil {
		t.Fatal(err)
	}
	if !c.Transport.HCA.Match("mlx5_0", 1) || c.Transport.HCA.Match("mlx5_2", 1) {
		t.Error("NCCL_IB_HCA did not reach the options")
	}
}

func TestErrors(t *testing.T) {
	tests := []struct{ name, value, want string }{
		{"NCCL_MESH_DEBUG", "loud", `NCCL_MESH_DEBUG="loud": want warn, info, debug or trace, or 0 to 3`},
		{"NCCL_IB_GID_INDEX", "x", `NCCL_IB_GID_INDEX="x": want a whole number from -1 to 65535`},
		{"NCCL_IB_TC", "256", `NCCL_IB_TC="256": want a whole number from -1 to 255`},
		{"NCCL_IB_TIMEOUT", "32", `NCCL_IB_TIMEOUT="32": want a whole number from 0 to 31`},
		{"NCCL_IB_TIMEOUT", "14s", `NCCL_IB_TIMEOUT="14s": want a whole number from 0 to 31`},
		{"NCCL_IB_RETRY_CNT", "99999999999999999999", `NCCL_IB_RETRY_CNT="99999999999999999999": want a whole number from 0 to 7`},
		{"NCCL_MESH_TRANSPORT", "udp", `NCCL_MESH_TRANSPORT="udp": want auto, rdma or tcp`},
		{"NCCL_MESH_GDR", "on", `NCCL_MESH_GDR="on": want auto, 0 or 1`},
		{"NCCL_MESH_TCP_CHECK", "yes", `NCCL_MESH_TCP_CHECK="yes": want auto, 0 or 1`},
		{"NCCL_MESH_TCP_STREAMS", "33", `NCCL_MESH_TCP_STREAMS="33": want a whole number from 0 to 32`},
		{"NCCL_MESH_PORTS", "50999-50000", `NCCL_MESH_PORTS="50999-50000": want FIRST-LAST, two ports from 1024 to 65535 in rising order, as in 50000-50999; correct it or unset it`},
		{"NCCL_MESH_TUNER", "off", `NCCL_MESH_TUNER="off": want 0 or 1`},
		{"NCCL_MESH_TOPOLOGY", "rign", `NCCL_MESH_TOPOLOGY="rign": want auto, full, ring or line`},
		{"NCCL_MESH_LANE_WAIT", "0", `NCCL_MESH_LANE_WAIT="0": want a number above 0, up to 86400, of units of 1s`},
		{"NCCL_MESH_LANE_WAIT", "NaN", `NCCL_MESH_LANE_WAIT="NaN": want a number above 0, up to 86400, of units of 1s`},
		{"NCCL_MESH_TIME_SCALE", "-1", `NCCL_MESH_TIME_SCALE="-1": want a number above 0, up to 1000`},
		{"NCCL_SOCKET_FAMILY", "inet", `NCCL_SOCKET_FAMILY="inet": want AF_INET or AF_INET6`},
		{"NCCL_IB_ADDR_RANGE", "10.0.0.1", `NCCL_IB_ADDR_RANGE="10.0.0.1": want an address and a prefix length, as in 10.0.0.0/8 or fd00::/8`},
		{"NCCL_IB_HCA", "mlx5_0:one", `NCCL_IB_HCA="mlx5_0:one": `},
		{"NCCL_IB_HCA", `"mlx5_0:1"`, `NCCL_IB_HCA="\"mlx5_0:1\"": the quotes are part of the value: `},
		{"NCCL_IB_HCA", `mlx5_0,"mlx5_1"`, `NCCL_IB_HCA="mlx5_0,\"mlx5_1\"": RDMA device list `},
		{"NCCL_IB_HCA", `mlx5_0, mlx5_1`, `NCCL_IB_HCA="mlx5_0, mlx5_1": RDMA device list "mlx5_0, mlx5_1": blanks are part of the value`},
		{"NCCL_SOCKET_IFNAME", `eth0, eth1`, `NCCL_SOCKET_IFNAME="eth0, eth1": interface list "eth0, eth1": blanks are part of the value`},
		{"NCCL_MESH_TRANSPORT", `'tcp'`, `NCCL_MESH_TRANSPORT="'tcp'": the quotes are part of the value: `},
		{"NCCL_MESH_SYSFS", `"/sys"`, `NCCL_MESH_SYSFS="\"/sys\"": the quotes are part of the value: `},
	}
	for _, tt := range tests {
		_, err := Read(envOf(map[string]string{tt.name: tt.value}))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s=%s: %v\nwant %s", tt.name, tt.value, err, tt.want)
		}
		var e *Error
		if !errors.As(err, &e) || e.Name != tt.name || e.Value != tt.value {
			t.Errorf("%s=%s: %#v names neither", tt.name, tt.value, err)
		}
	}
	_, err := Read(envOf(map[string]string{"NCCL_MESH_GDR": "1", "NCCL_MESH_TRANSPORT": "TCP"}))
	const contradiction = `NCCL_MESH_GDR="1": NCCL_MESH_TRANSPORT is tcp, and lanes over TCP cannot use GPU memory: that takes rdma or auto; correct it or unset it`
	if err == nil || err.Error() != contradiction {
		t.Errorf("GPU memory over TCP: %v\nwant %s", err, contradiction)
	}
	_, err = Read(envOf(map[string]string{"NCCL_IB_TC": "a", "NCCL_IB_SL": "b"}))
	if err == nil || !strings.Contains(err.Error(), "NCCL_IB_TC") || !strings.Contains(err.Error(), "NCCL_IB_SL") {
		t.Errorf("two bad values: %v", err)
	}
}

// A key that can be guessed is refused, and the error does not contain it.
func TestKey(t *testing.T) {
	const short = `NCCL_MESH_KEY="(set)": it has 15 characters, and anybody at a cable could guess it: want 16 or more, the same on all nodes, ` +
		"as this command makes them: openssl rand -base64 24; correct it or unset it"
	for key, want := range map[string]string{"0123456789abcde": short, "äöüÄÖÜß89abcdef": short, "0123456789abcdef": "", "": ""} {
		c, err := Read(envOf(map[string]string{"NCCL_MESH_KEY": key}))
		if want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%q: %v, want %s", key, err, want)
		}
		if want == "" && (err != nil || c.Transport.Key != key) {
			t.Errorf("%q: key %q, error %v", key, c.Transport.Key, err)
		}
	}
}

// A Setting contains the value, its origin and its error.
func TestSettings(t *testing.T) {
	const name = "NCCL_IB_GID_INDEX"
	tests := []struct {
		env           map[string]string
		value, origin string
		err           string
	}{
		{nil, "-1", "", ""},
		{map[string]string{name: " 5 "}, "5", name, ""},
		{map[string]string{name: ""}, "-1", "", ""},
		{map[string]string{"NCCL_MESH_GID_INDEX": "3"}, "3", "NCCL_MESH_GID_INDEX", ""},
		{map[string]string{name: " ", "NCCL_MESH_GID_INDEX": "3"}, "3", "NCCL_MESH_GID_INDEX", ""},
		{map[string]string{name: "5", "NCCL_MESH_GID_INDEX": "3"}, "5", name, ""},
		{map[string]string{name: "5", "NCCL_MESH_GID_INDEX": "x"}, "5", name, ""}, // without effect
		{map[string]string{"NCCL_MESH_GID_INDEX": "x"}, "x", "NCCL_MESH_GID_INDEX",
			`NCCL_MESH_GID_INDEX="x": want a whole number from -1 to 65535; correct it or unset it`},
	}
	for _, tt := range tests {
		settings := Settings(envOf(tt.env))
		if len(settings) != len(variables) {
			t.Fatalf("%d settings for %d variables", len(settings), len(variables))
		}
		for i, s := range settings {
			if s.Name != variables[i].Name || s.Name != name && (s.Origin != "" || s.Value != s.Default || s.Err != nil) {
				t.Errorf("%v: %+v", tt.env, s)
			}
			if s.Name != name {
				continue
			}
			said := ""
			if s.Err != nil {
				said = s.Err.Error()
			}
			if s.Value != tt.value || s.Origin != tt.origin || said != tt.err || s.Default != "-1" {
				t.Errorf("%v: %+v, want %q from %q, error %q", tt.env, s, tt.value, tt.origin, tt.err)
			}
		}
	}
}

// An older name belongs to a present variable, and is not itself a present one.
func TestOlderNames(t *testing.T) {
	for name, old := range oldNames {
		if !slices.ContainsFunc(variables, func(v Variable) bool { return v.Name == name }) {
			t.Errorf("%s is the older name of %s, which is not read", old, name)
		}
		if slices.ContainsFunc(variables, func(v Variable) bool { return v.Name == old }) {
			t.Errorf("%s is an older name and a present one", old)
		}
	}
}

func TestOfCommunicator(t *testing.T) {
	tests := []struct {
		name   string
		env    string
		comm   int
		tc, sl int
	}{
		{"neither", "", -1, -1, -1},
		{"communicator", "", 5, 5, 5},
		{"environment first", "96", 5, 96, 5},
		{"environment undefined", "-1", 5, 5, 5},
		{"beyond a service level", "", 200, 200, 15},
		{"beyond both", "", 1000, 255, 15},
	}
	for _, tt := range tests {
		c, err := Read(envOf(map[string]string{"NCCL_IB_TC": tt.env}))
		if err != nil {
			t.Fatal(err)
		}
		if o := c.OfCommunicator(tt.comm); o.TrafficClass != tt.tc || o.ServiceLevel != tt.sl {
			t.Errorf("%s: class %d, level %d; want %d, %d", tt.name, o.TrafficClass, o.ServiceLevel, tt.tc, tt.sl)
		}
	}
}

func TestUnknown(t *testing.T) {
	tests := []struct{ name, want string }{
		{"NCCL_MESH_DEBUG", ""},
		{"NCCL_MESH_GID_INDEX", ""}, // an older name
		{"NCCL_MESH_LANES_WAIT", "NCCL_MESH_LANE_WAIT"},
		{"NCCL_MESH_STRIPE", "NCCL_MESH_STRIPE_THRESHOLD"},
		{"NCCL_MESH_TRANSPRT", "NCCL_MESH_TRANSPORT"},
		{"NCCL_MESH_HCA", "NCCL_IB_HCA"}, // another prefix
		{"NCCL_IB_HCA", ""},
		{"NCCL_IB_GID_INDX", "NCCL_IB_GID_INDEX"},
		{"NCCL_IB_HCAS", "NCCL_IB_HCA"},
		{"NCCL_IB_IFNAME", "NCCL_SOCKET_IFNAME"},
		{"NCCL_IB_DISABLED", "NCCL_IB_DISABLE"}, // which the plugin does not read
		{"NCCL_IB_DISABLE", ""},
		{"NCCL_IB_SUBNET_AWARE_ROUTING", ""},
		{"NCCL_IB_FABRICID_MAXRAIL", ""},
		{"NCCL_IB_SOCK_CLIENT_PORT_REUSE", ""}, // RCCL's
		{"NCCL_SOCKET_IFNAME", ""},
		{"NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"},
		{"NCCL_SOCKET_NTHREADS", ""},
		{"NCCL_SOCKET_THREADS", "NCCL_SOCKET_NTHREADS"},
		{"NCCL_IBVERBS_LIB", ""}, // a name of NCCL's without any of the three prefixes
		{"NCCL_SOCKT_IFNAME", ""},
		{"PATH", ""},
	}
	for _, tt := range tests {
		var want []string
		if tt.want != "" {
			readers := "this plugin"
			if !strings.HasPrefix(tt.name, "NCCL_MESH_") {
				readers = "this plugin or of NCCL"
			}
			want = []string{tt.name + " is not a setting of " + readers + " and has no effect; did you mean " + tt.want + "?"}
		}
		if diff := cmp.Diff(want, Unknown([]string{"HOME=/", tt.name + "=1"})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Variables of NCCL alone are not variables of the plugin, and each has one of the checked prefixes.
func TestNamesOfNCCL(t *testing.T) {
	own := names()
	for i, name := range ofNCCL {
		if slices.Contains(own, name) || slices.Contains(ofNCCL[:i], name) || prefixOf(name) == "" {
			t.Errorf("%s is listed twice, or would not be looked at", name)
		}
	}
}

// The documented defaults are those in effect.
func TestWrittenDefaultsParse(t *testing.T) {
	for _, v := range variables {
		c := Default()
		switch v.Default {
		case "all ports", "any", "as NCCL", "both", "none", "all addresses", "boot id and network namespace",
			"the communicator's, or 0", "the communicator's traffic class, or 0", "all but those named in `NCCL_SOCKET_IFNAME`":
			continue // a word for the absence of the setting
		}
		if err := v.set(&c, v.Default); err != nil {
			t.Errorf("%s: the default %q: %v", v.Name, v.Default, err)
		}
	}
}

func TestWriteTable(t *testing.T) {
	var b bytes.Buffer
	if err := WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != len(names())+2 {
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
		c, err := Read(func(string) string { return value })
		if err != nil {
			if e := (*Error)(nil); !errors.As(err, &e) {
				t.Errorf("%q: %v", value, err)
			}
			return
		}
		if c.Transport.TimeScale < 0 || c.Transport.LaneWait < 0 {
			t.Errorf("%q: %+v", value, c)
		}
	})
}
