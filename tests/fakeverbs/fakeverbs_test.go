package fakeverbs

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/internal/need"
	"ncclmesh/tests/internal/proved"
	"ncclmesh/tests/require"
)

var (
	missing error // what the tests of this package cannot do without
	out     string
)

func TestMain(m *testing.M) {
	missing = need.Missing("cc", "make", "flock", "nm", "ip", need.VerbsHeader)
	out, _ = filepath.Abs("../../build/fakeverbs")
	if missing == nil {
		for _, target := range []string{"all", "old"} {
			if msg, err := exec.Command("make", target, "OUT="+out).CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "make %s: %v\n%s", target, err, msg)
				os.Exit(1)
			}
		}
	}
	os.Exit(m.Run())
}

// requireFake skips a test where the library cannot be built.
func requireFake(t testing.TB) {
	t.Helper()
	if missing != nil {
		require.Skip(t, require.Fake, missing.Error())
	}
}

// tool runs one of the commands that were built into dir.
func tool(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(dir, name), args...)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	return cmd
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	msg, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, msg)
	}
	return string(msg)
}

// requireNamespaces skips a test where fakenet may not make networks.
func requireNamespaces(t *testing.T) {
	t.Helper()
	requireFake(t)
	if msg, err := tool(out, "fakenet", "run", "-n", "a", "triangle.txt", "true").CombinedOutput(); err != nil {
		require.Skip(t, require.Netns, strings.TrimSpace(string(msg)))
	}
}

// symbols returns the names a library defines, as name@version or
// name@@version for the default.
func symbols(t *testing.T, path string) []string {
	t.Helper()
	var names []string
	for _, line := range strings.Split(output(t, exec.Command("nm", "-D", "-f", "posix", "--defined-only", "--with-symbol-versions", path)), "\n") {
		if f := strings.Fields(line); len(f) > 1 && f[1] != "A" {
			names = append(names, f[0])
		}
	}
	slices.Sort(names)
	return names
}

func installed(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(output(t, exec.Command("cc", "-print-file-name=libibverbs.so")))
}

func TestSymbols(t *testing.T) {
	requireFake(t)
	want := symbols(t, installed(t))
	if len(want) < 100 {
		t.Fatalf("%s has %d symbols", installed(t), len(want))
	}
	if diff := cmp.Diff(want, symbols(t, filepath.Join(out, "libibverbs.so.1"))); diff != "" {
		t.Errorf("names and versions (-installed +fake):\n%s", diff)
	}
	if to, err := os.Readlink(filepath.Join(out, "libibverbs.so")); to != "libibverbs.so.1" { // NCCL tries that name first
		t.Errorf("libibverbs.so leads to %q, %v", to, err)
	}
	f, err := elf.Open(filepath.Join(out, "libibverbs.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if so, err := f.DynString(elf.DT_SONAME); err != nil || !slices.Equal(so, []string{"libibverbs.so.1"}) {
		t.Errorf("soname %v, %v", so, err)
	}
}

// The libraries of older systems lack exactly the names that came later.
func TestOldSymbols(t *testing.T) {
	requireFake(t)
	all := symbols(t, installed(t))
	version := regexp.MustCompile(`@IBVERBS_1\.(\d+)$`)
	for _, newest := range []int{1, 8, 10, 12} {
		var want []string
		for _, s := range all {
			var minor int
			if m := version.FindStringSubmatch(s); m != nil {
				fmt.Sscan(m[1], &minor)
			}
			if minor <= newest {
				want = append(want, s)
			}
		}
		got := symbols(t, filepath.Join(out, "old", fmt.Sprintf("1.%d", newest), "libibverbs.so.1"))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("1.%d (-want +got):\n%s", newest, diff)
		}
	}
}

// onceProved leaves a test out until the library or the tests differ from those that it has passed with. The file "proved" has
// those, and `FULL=1 PROVED=1 go test ./tests/fakeverbs` writes it.
func onceProved(t *testing.T) {
	t.Helper()
	if proved.With(t, "Makefile", "fakenet_test.go", "fakeverbs_test.go", "selftest", "src") {
		require.Full(t, "tests/fakeverbs TestDevinfo, tests/sim/conformance TestFake, and this test itself where the library differs from that which passed it")
	}
}

// cases returns the names of the library's own cases.
func cases(t *testing.T, dir string) []string {
	t.Helper()
	return strings.Fields(output(t, tool(dir, "selftest", "-l")))
}

// selftest runs cases on a pair of nodes.
func selftest(t *testing.T, dir, topology string, env []string, names ...string) {
	t.Helper()
	cmd := tool(dir, "fakenet", append([]string{"run", "-p", "-n", "a", topology, filepath.Join(dir, "selftest")}, names...)...)
	cmd.Env = append(cmd.Env, env...)
	msg, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, msg)
	}
	t.Logf("%s", msg)
}

func TestCases(t *testing.T) {
	onceProved(t)
	requireFake(t)
	for _, name := range slices.DeleteFunc(cases(t, out), modelled) {
		t.Run(name, func(t *testing.T) { selftest(t, out, "selftest/pair.txt", nil, name) })
	}
}

// The same under sanitizers, all in one run. Speed, and what has to happen at the same moment, is not theirs to judge.
func TestSanitizers(t *testing.T) {
	onceProved(t)
	requireFake(t)
	for name, s := range map[string]struct {
		flags string
		env   []string
	}{
		"address": {"address,undefined", []string{"UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1"}},
		"thread":  {"thread", []string{"TSAN_OPTIONS=die_after_fork=0:halt_on_error=1:atexit_sleep_ms=0"}},
	} {
		t.Run(name, func(t *testing.T) {
			probe := exec.Command("cc", "-fsanitize="+s.flags, "-x", "c", "-", "-o", filepath.Join(t.TempDir(), "probe"))
			probe.Stdin = strings.NewReader("int main(void) { return 0; }")
			if msg, err := probe.CombinedOutput(); err != nil {
				require.Skip(t, require.Fake, fmt.Sprintf("the compiler has no -fsanitize=%s: %s", s.flags, msg))
			}
			dir := filepath.Join(out, name)
			output(t, exec.Command("make", "OUT="+dir, "SANITIZE="+s.flags))
			names := slices.DeleteFunc(cases(t, dir), func(n string) bool {
				return modelled(n) || slices.Contains([]string{"speed", "quickness", "unseen"}, n)
			})
			selftest(t, dir, "selftest/pair.txt", s.env, names...)
		})
	}
}

// modelled says that a case needs a link with a rate or a latency.
func modelled(name string) bool { return name == "rate" || name == "latency" || name == "fair" }

// A link with a rate or a latency keeps to it.
func TestModel(t *testing.T) {
	onceProved(t)
	requireFake(t)
	for _, tt := range []struct {
		link, env string
		name      string
		sample    bool
	}{
		{"rate 100MB", "MODEL_RATE=1e8", "rate", false},
		{"rate 1GB", "MODEL_RATE=1e9", "rate", false},
		{"rate 8Gb latency 50us", "MODEL_RATE=1e9", "rate", true},
		{"rate 1GB", "MODEL_RATE=1e8 CHANGE=100000000", "rate", false},
		{"rate 100MB", "MODEL_RATE=1e8", "fair", true},
		{"latency 20us", "MODEL_LATENCY=20e-6", "latency", false},
		{"latency 100us", "MODEL_LATENCY=100e-6", "latency", true},
		{"latency 1ms", "MODEL_LATENCY=1e-3", "latency", false},
	} {
		t.Run(tt.name+" "+tt.link+" "+tt.env, func(t *testing.T) {
			if !tt.sample {
				require.Full(t, "the same test of another rate or latency")
			}
			text, err := os.ReadFile("selftest/pair.txt")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "pair.txt")
			modelled := bytes.Replace(text, []byte("link a:rdma0 b:rdma0"), []byte("link a:rdma0 b:rdma0 "+tt.link), 1)
			if err := os.WriteFile(file, modelled, 0o600); err != nil {
				t.Fatal(err)
			}
			selftest(t, out, file, strings.Fields(tt.env), tt.name)
		})
	}
}

// foreign runs a program of libibverbs-utils or perftest between nodes a and b,
// and returns what a says.
func foreign(t *testing.T, topology, program string, args ...string) string {
	t.Helper()
	require.Tools(t, require.Fake, program)
	script := fmt.Sprintf(`
		case $FAKEVERBS_NODE in
		a) exec timeout 60 %[1]s -d rdma0 %[2]s ;;
		b) for i in 1 2 3 4 5 6 7 8 9; do
		       timeout 60 %[1]s -d rdma1 %[2]s a && exit 0
		       sleep 0.$i # a does not listen yet
		   done; exit 1 ;;
		esac`, program, strings.Join(args, " "))
	return output(t, tool(out, "fakenet", "run", "-n", "a", "-n", "b", topology, "sh", "-c", script))
}

// Programs nobody here wrote.
func TestForeign(t *testing.T) {
	onceProved(t)
	requireNamespaces(t)
	const triangle, infiniband = "triangle.txt", "infiniband.txt"
	for _, tt := range []struct {
		topology, program string
		args              []string
		want              string
		sample            bool
	}{
		{triangle, "ibv_rc_pingpong", []string{"-g", "3", "-c", "-n", "200"}, `200 iters in`, false}, // -c: it looks at the data
		{triangle, "ibv_rc_pingpong", []string{"-g", "3", "-c", "-n", "200", "-e"}, `200 iters in`, true},
		{triangle, "ib_write_bw", []string{"-F", "-x", "3", "-n", "500"}, `65536 +500 `, false},
		{triangle, "ib_write_bw", []string{"-F", "-x", "3", "-n", "20", "-a"}, `8388608 +20 `, false},
		{triangle, "ib_read_bw", []string{"-F", "-x", "3", "-n", "500"}, `65536 +500 `, true},
		{triangle, "ib_send_bw", []string{"-F", "-x", "3", "-n", "500"}, `65536 +500 `, false},
		{triangle, "ib_send_bw", []string{"-F", "-x", "3", "-n", "100", "-e"}, `65536 +100 `, false},
		{triangle, "ib_send_bw", []string{"-F", "-x", "3", "-n", "100", "-b", "-e", "-q", "4"}, `65536 +400 `, true}, // arms a queue that holds entries
		{triangle, "ib_write_lat", []string{"-F", "-x", "3", "-n", "200"}, `2 +200 `, false},
		{infiniband, "ibv_rc_pingpong", []string{"-c", "-n", "200"}, `200 iters in`, true},
		{infiniband, "ibv_rc_pingpong", []string{"-c", "-n", "200", "-g", "0"}, `200 iters in`, false},
		{infiniband, "ib_write_bw", []string{"-F", "-n", "500"}, `65536 +500 `, false},
		{infiniband, "ib_read_bw", []string{"-F", "-n", "500"}, `65536 +500 `, true},
		{infiniband, "ib_send_bw", []string{"-F", "-n", "100", "-e"}, `65536 +100 `, false},
	} {
		t.Run(strings.Join(append([]string{tt.topology, tt.program}, tt.args...), " "), func(t *testing.T) {
			if !tt.sample {
				require.Full(t, "the same test of other programs and options")
			}
			got := foreign(t, tt.topology, tt.program, tt.args...)
			if !regexp.MustCompile(`(?m)^a: .*` + tt.want).MatchString(got) {
				t.Errorf("a does not say %q:\n%s", tt.want, got)
			}
		})
	}
}

func TestDevinfo(t *testing.T) {
	requireNamespaces(t)
	require.Tools(t, require.Fake, "ibv_devinfo")
	lids := output(t, tool(out, "fakenet", "run", "-n", "b", "infiniband.txt", "ibv_devinfo", "-v", "-d", "rdma1"))
	for _, want := range []string{`state:\s+PORT_ACTIVE`, `active_mtu:\s+4096`, `sm_lid:\s+1\n`, `port_lid:\s+2\n`, `link_layer:\s+InfiniBand`,
		`GID\[  0\]:\s+fe80:0000:0000:0000:00fb:01ff:fe01:0101\n`} {
		if !regexp.MustCompile(want).MatchString(lids) {
			t.Errorf("ibv_devinfo does not match %q:\n%s", want, lids)
		}
	}
	list := output(t, tool(out, "fakenet", "run", "-n", "b", "triangle.txt", "ibv_devices"))
	for _, want := range []string{`(?m)^ +rdma0 +\t00fb01fffe000101$`, `(?m)^ +rdma1 +\t00fb01fffe010101$`} {
		if !regexp.MustCompile(want).MatchString(list) {
			t.Errorf("ibv_devices does not match %q:\n%s", want, list)
		}
	}
	info := output(t, tool(out, "fakenet", "run", "-n", "b", "triangle.txt", "ibv_devinfo", "-v", "-d", "rdma1"))
	for _, want := range []string{
		`hca_id:\trdma1`, `node_guid:\s+00fb:01ff:fe01:0101`, `phys_port_cnt:\s+1`, `state:\s+PORT_ACTIVE`, `active_mtu:\s+1024`,
		`link_layer:\s+Ethernet`, `active_width:\s+4X`, `active_speed:\s+25.0 Gbps`, `GID\[  3\]:\s+::ffff:192.168.1.2, RoCE v2`,
		`max_msg_sz:\s+0x40000000`,
	} {
		if !regexp.MustCompile(want).MatchString(info) {
			t.Errorf("ibv_devinfo does not match %q:\n%s", want, info)
		}
	}
}

// exitCode is the exit status of a command.
func exitCode(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	err := cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return 0
}
