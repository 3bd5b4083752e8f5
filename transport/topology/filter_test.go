package topology

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHCAFilter(t *testing.T) {
	ports := []Port{
		{Device: "mlx5_0", Num: 1}, {Device: "mlx5_1", Num: 1}, {Device: "mlx5_1", Num: 2}, {Device: "mlx5_10", Num: 1}, {Device: "rocep1s0f0", Num: 1},
	}
	all := []string{"mlx5_0:1", "mlx5_1:1", "mlx5_1:2", "mlx5_10:1", "rocep1s0f0:1"}
	tests := []struct {
		in   string
		want []string
	}{
		{"", all},
		{"  ", all},
		{"mlx5", all[:4]},
		{"mlx5_1", all[1:4]},
		{"=mlx5_1", all[1:3]},
		{"mlx5_1:2", all[2:3]},
		{"=mlx5_1:1", all[1:2]},
		{"mlx5_0:1,roce", []string{all[0], all[4]}},
		{"^mlx5_1", []string{all[0], all[4]}},
		{"^=mlx5_1", []string{all[0], all[3], all[4]}},
		{"^=mlx5_1:2", []string{all[0], all[1], all[3], all[4]}},
		{" mlx5_0:1:0:1,mlx5_1:2:1:0, ", []string{all[0], all[2]}}, // rails and planes
		{"mlx5_1::3", all[1:4]},
		{"nothing", nil},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			f, err := ParseHCA(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range f.Select(ports) {
				got = append(got, p.String())
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestParseHCAErrors(t *testing.T) {
	const want = "; want [^][=]name[:port],… such as mlx5_0:1,mlx5_1 or ^=mlx5_2"
	const blanks = "blanks are part of the value, and no name has one: write commas alone between the names"
	const quotes = "quotes are part of the value, and no name has one: a shell takes them off, docker --env-file, Kubernetes and systemd may not; write it without"
	tests := []struct{ in, err string }{
		{"^", "no name in it"},
		{"=,", "no name in it"},
		{"=^mlx5_0", `"^mlx5_0" is not a name`},
		{"mlx5_0,=mlx5_1", `"=mlx5_1" is not a name`},
		{"mlx5_0 mlx5_1", blanks},
		{"mlx5_0:1, mlx5_1:1", blanks},
		{"^= mlx5_0", blanks},
		{`"mlx5_0:1"`, quotes},
		{`mlx5_0,'mlx5_1'`, quotes},
		{":1", `"" is not a name`},
		{"mlx5_0:x", `port "x" of "mlx5_0" is not a number from 1 to 255`},
		{"mlx5_0:0", `port "0" of "mlx5_0" is not a number from 1 to 255`},
		{"mlx5_0:1:-1", `rail "-1" of "mlx5_0" is not a number from 0 to 255`},
		{"mlx5_0:1:0:256", `plane "256" of "mlx5_0" is not a number from 0 to 255`},
		{"mlx5_0:1:0:0:0", `"mlx5_0:1:0:0:0" has more than name:port:rail:plane`},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			_, err := ParseHCA(tt.in)
			check(t, 0, err, 0, `RDMA device list `+strconv.Quote(tt.in)+`: `+tt.err+want)
		})
	}
}

func TestParseInterfacesError(t *testing.T) {
	_, err := ParseInterfaces("^,")
	check(t, 0, err, 0, `interface list "^,": no name in it; want [^][=]name,… such as enp1s0f0,eth or ^docker,lo`)
}

func TestInterfaceSelect(t *testing.T) {
	tests := []struct {
		name, fixture, filter string
		edits                 []string
		want, waiting         []string
	}{
		{"all that lead anywhere", "gb10", "", nil, []string{"enp1s0f0np0", "enp1s0f1np1", "enP2p1s0f0np0", "enP2p1s0f1np1", "enP7s7"}, nil},
		{"prefix", "gb10", "enP2", nil, []string{"enP2p1s0f0np0", "enP2p1s0f1np1"}, nil},
		{"exact", "gb10", "=enP2", nil, nil, nil},
		{"exclude", "gb10", "^enp,enP2", nil, []string{"enP7s7"}, nil},
		{"port is ignored, as NCCL does", "gb10", "enP7s7:1", nil, []string{"enP7s7"}, nil},
		{"a bridge to containers when asked for", "plain", "docker0", nil, []string{"docker0"}, nil},
		{"loopback when asked for", "plain", "lo", nil, []string{"lo"}, nil},
		{"no bridge, nothing without an address", "plain", "", nil, []string{"enp3s0"}, []string{"wlp2s0"}},
		{"loopback alone", "plain", "", []string{"link 2 enp3s0 device up"}, []string{"lo"}, []string{"wlp2s0"}},
		{"a routed address on loopback", "plain", "", []string{"link 1 lo device mtu 65536 up carrier loopback 127.0.0.1/8 10.10.10.1/32 ::1/128"}, []string{"enp3s0"}, []string{"wlp2s0"}},
		{"a routed address on loopback alone", "plain", "", []string{"link 1 lo device mtu 65536 up carrier loopback 127.0.0.1/8 10.10.10.1/32", "link 2 enp3s0 device up"},
			[]string{"lo"}, []string{"wlp2s0"}},
		{"loopback excluded", "plain", "^lo", []string{"link 2 enp3s0 device up"}, nil, []string{"wlp2s0"}},
		{"VLANs", "bond", "", nil, []string{"vf.20", "bond0", "bond0.100"}, []string{"ens1f0np0", "ens1f1np1", "ens1f0v0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := ParseInterfaces(tt.filter)
			if err != nil {
				t.Fatal(err)
			}
			names := func(ports []Port) (all []string) {
				for _, p := range ports {
					all = append(all, p.Netdev)
				}
				return all
			}
			plain := discover(t, tt.fixture, tt.edits...).Plain
			if d := cmp.Diff(tt.want, names(f.Select(plain))); d != "" {
				t.Errorf("Select (-want +got)\n%s", d)
			}
			if d := cmp.Diff(tt.waiting, names(f.Waiting(plain))); d != "" {
				t.Errorf("Waiting (-want +got)\n%s", d)
			}
		})
	}
}

func FuzzParseHCA(f *testing.F) {
	for _, s := range []string{"", "^=mlx5_0:1,mlx5_1:2:0:1", "=", "^", "a:b", "a,,b", " a ", "a:::"} {
		f.Add(s, "mlx5_0", uint8(1))
	}
	f.Fuzz(func(t *testing.T, s, device string, port uint8) {
		hca, err := ParseHCA(s)
		ifs, err2 := ParseInterfaces(s)
		if (err == nil) != (err2 == nil) {
			t.Errorf("ParseHCA says %v, ParseInterfaces %v", err, err2)
		}
		if err != nil {
			return
		}
		// A list and its opposite never agree.
		if opposite, err := ParseHCA("^" + strings.TrimSpace(s)); err == nil && len(hca.list.names) > 0 && !hca.list.exclude {
			if hca.Match(device, port) == opposite.Match(device, port) {
				t.Errorf("%q and its opposite agree on %s:%d", s, device, port)
			}
		}
		// A port number can only narrow what a name selects.
		if !hca.list.exclude && hca.Match(device, port) && !ifs.Match(device) {
			t.Errorf("%q selects %s:%d but not %s", s, device, port, device)
		}
	})
}
