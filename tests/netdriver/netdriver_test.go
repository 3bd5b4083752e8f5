package netdriver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/internal/proved"
	"ncclmesh/tests/require"
)

// A hang guard, not a measure.
const patience = 20 * time.Minute

// build makes the driver and the reference plugin in a directory of their own.
func build(tb testing.TB, cc, cflags string) (driver, plugin string) {
	tb.Helper()
	dir := tb.TempDir()
	if out, err := exec.Command("make", "-C", ".", "BUILD="+dir, "CC="+cc, "CFLAGS="+cflags).CombinedOutput(); err != nil {
		tb.Fatalf("make: %v\n%s", err, out)
	}
	return filepath.Join(dir, "netdriver"), filepath.Join(dir, "libnccl-net-self.so")
}

var plain struct {
	once           sync.Once
	driver, plugin string
	err            error
}

// programs are built once for all tests that do not ask for special flags.
func programs(t *testing.T) (driver, plugin string) {
	t.Helper()
	plain.once.Do(func() {
		dir, err := os.MkdirTemp("", "netdriver")
		if err == nil {
			var out []byte
			if out, err = exec.Command("make", "-C", ".", "BUILD="+dir, "CFLAGS=-O2 -g").CombinedOutput(); err != nil {
				err = fmt.Errorf("%w\n%s", err, out)
			}
		}
		plain.driver = filepath.Join(dir, "netdriver")
		plain.plugin = filepath.Join(dir, "libnccl-net-self.so")
		plain.err = err
	})
	if plain.err != nil {
		t.Fatal(plain.err)
	}
	return plain.driver, plain.plugin
}

func TestMain(m *testing.M) {
	code := m.Run()
	if plain.driver != "" {
		os.RemoveAll(filepath.Dir(plain.driver))
	}
	os.Exit(code)
}

type outcome struct {
	status         int
	stdout, stderr string
}

// run runs the driver and returns how it ended; env is added to the environment.
func run(t *testing.T, env []string, name string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	guard := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	if !guard.Stop() {
		t.Fatalf("%s %s: killed after %v\n%s%s", name, strings.Join(args, " "), patience, &stdout, &stderr)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// report is the driver's JSON.
type report struct {
	Network       string
	API           int
	Ranks         int
	Communicators int
	Wrong         int
	OK            bool
	Results       []struct {
		Work     string
		Size     int
		Wrong    int
		Busbw    float64
		Case     string
		Verdict  string
		Detail   string
		Messages int
		Bytes    int64
	}
	Calls map[string]struct{ Calls int }
}

func parse(t *testing.T, o outcome) report {
	t.Helper()
	if o.status != 0 {
		t.Fatalf("status %d\n%s%s", o.status, o.stdout, o.stderr)
	}
	var r report
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		t.Fatalf("%v\n%s", err, o.stdout)
	}
	if !r.OK || r.Wrong != 0 {
		t.Errorf("status 0, and yet ok %v, wrong %d", r.OK, r.Wrong)
	}
	return r
}

// libcuda is the library that gives a GPU's memory without a GPU.
func libcuda(t *testing.T) string {
	t.Helper()
	require.Tools(t, require.CC, "flock")
	dir, err := filepath.Abs("../../build/fakecuda")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("make", "-C", "../fakecuda", "OUT="+dir).CombinedOutput(); err != nil {
		t.Fatalf("make: %v\n%s", err, out)
	}
	return filepath.Join(dir, "libcuda.so.1")
}

const allWork = "allreduce,allgather,alltoall,sendrecv,tree,doubling,latency,soak,contract,tuner"

// everything runs all work on three ranks and checks that it was really done.
func everything(t *testing.T, env []string, driver, plugin, api string, args ...string) report {
	o := run(t, env, driver, append([]string{"--plugin", plugin, "--api", api, "--spawn", "3", "--nodeid-env", "--work", allWork,
		"--max", "300K", "--chunk", "64K", "--factor", "16", "--iters", "2", "--comms", "2", "--messages", "40",
		"--json", "-"}, args...)...)
	r := parse(t, o)
	if want := strings.TrimPrefix(api, "v"); fmt.Sprint(r.API) != want || r.Ranks != 3 || r.Communicators != 2 {
		t.Errorf("api %d, %d ranks, %d communicators", r.API, r.Ranks, r.Communicators)
	}
	got := map[string]int{}
	for _, result := range r.Results {
		got[result.Work]++
		if result.Verdict == "FAIL" || result.Wrong != 0 {
			t.Errorf("%+v", result)
		}
	}
	want := map[string]int{"allreduce": 4, "allgather": 4, "alltoall": 4, "sendrecv": 4, "tree": 4, "doubling": 4, "latency": 8, "soak": 1}
	want["contract"] = got["contract"]
	if diff := cmp.Diff(want, got); diff != "" || got["contract"] < 30 {
		t.Errorf("results (-want +got):\n%s%d contract cases", diff, got["contract"])
	}
	for _, call := range []string{"init", "connect", "accept", "regMr", "isend", "irecv", "test", "iflush"} {
		if r.Calls[call].Calls == 0 {
			t.Errorf("%s was never called", call)
		}
	}
	for rank := range 3 {
		if line := fmt.Sprintf("netdriver: rank %d: ok, #wrong 0", rank); !strings.Contains(o.stderr, line) {
			t.Errorf("no line %q in\n%s", line, o.stderr)
		}
	}
	return r
}

// TestGPUMemory: all is well where messages lie in a GPU's memory, which the processor cannot touch.
func TestGPUMemory(t *testing.T) {
	onceProved(t)
	driver, plugin := programs(t)
	for _, memory := range []string{"cuda", "dmabuf"} {
		for _, api := range []string{"v5", "v6", "v8", "v10", "v12"} {
			t.Run(memory+" "+api, func(t *testing.T) {
				t.Parallel()
				r := everything(t, []string{"SELFPLUGIN_GPU=cuda,dmabuf"}, driver, plugin, api, "--memory", memory, "--libcuda", libcuda(t))
				if got, want := r.Calls["regMrDmaBuf"].Calls > 20, memory == "dmabuf" && api != "v5"; got != want {
					t.Errorf("%d calls of regMrDmaBuf", r.Calls["regMrDmaBuf"].Calls)
				}
				if n := r.Calls["iflush"].Calls; n < 200 {
					t.Errorf("%d calls of iflush", n)
				}
			})
		}
	}
	for _, tt := range []struct{ gpu, api, memory, want string }{
		{"", "v12", "cuda", `does not take the pointers of --memory \(ptrSupport 1, 3 is needed\)`},
		{"cuda", "v12", "dmabuf", `\(ptrSupport 3, 5 is needed\)`},
		{"dmabuf", "v5", "dmabuf", `\(ptrSupport 5, 3 is needed\)`},
	} {
		o := run(t, []string{"SELFPLUGIN_GPU=" + tt.gpu}, driver, "--plugin", plugin, "--spawn", "1", "--api", tt.api, "--memory", tt.memory, "--libcuda", libcuda(t))
		if o.status == 0 || !regexp.MustCompile(tt.want).MatchString(o.stderr) {
			t.Errorf("%+v: status %d\n%s", tt, o.status, o.stderr)
		}
	}
}

// onceProved leaves a test out until the driver, the reference plugin or the tests differ from those that it has passed with. The file
// "proved" has those, and `FULL=1 PROVED=1 go test ./tests/netdriver` writes it.
func onceProved(t *testing.T) {
	t.Helper()
	if proved.With(t, "Makefile", "faults_test.go", "netdriver_test.go", "selfplugin", "src") {
		require.Full(t, "tests/netdriver TestEverything, and this test itself where the driver differs from that which passed it")
	}
}

func TestEverything(t *testing.T) {
	driver, plugin := programs(t)
	for version := 5; version <= 12; version++ {
		api := fmt.Sprintf("v%d", version)
		t.Run(api, func(t *testing.T) {
			if version != 12 {
				require.Full(t, "the same test of v12, and tests/e2e TestVersions")
			}
			t.Parallel()
			everything(t, nil, driver, plugin, api)
		})
	}
}

// TestProfiled: all is well where a profiler listens to a plugin that tells it, or that is too old to.
func TestProfiled(t *testing.T) {
	onceProved(t)
	driver, plugin := programs(t)
	for api, want := range map[string]string{"v9": `profiler: 0 network events`, "v10": `profiler: 0 network events`,
		"v11": `profiler: [1-9]\d* network events`, "v12": `profiler: [1-9]\d* network events`} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			o := run(t, nil, driver, "--plugin", plugin, "--api", api, "--spawn", "2", "--work", "allreduce,soak", "--profile",
				"--max", "64K", "--factor", "16", "--messages", "60", "--json", "-")
			parse(t, o)
			if !regexp.MustCompile(want).MatchString(o.stderr) {
				t.Errorf("no line %q in\n%s", want, o.stderr)
			}
		})
	}
}

func TestSanitized(t *testing.T) {
	onceProved(t)
	driver, plugin := build(t, "gcc", "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all")
	for _, api := range []string{"v12", "v8"} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			everything(t, nil, driver, plugin, api)
		})
	}
}

// TestFaults breaks one rule of the contract at a time in the reference plugin: the driver must notice each
// one and name it.
func TestFaults(t *testing.T) {
	onceProved(t)
	driver, plugin := programs(t)
	for _, tt := range faults() {
		t.Run(tt.name+" "+tt.args[1], func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--plugin", plugin, "--spawn", "2", "--timeout", "20"}, tt.args...)
			env := []string{"SELFPLUGIN_FAULT=" + tt.name}
			if slices.Contains(args, "--memory") {
				env = append(env, "SELFPLUGIN_GPU=cuda,dmabuf")
				args = append(args, "--libcuda", libcuda(t))
			}
			o := run(t, env, driver, args...)
			if o.status == 0 {
				t.Errorf("the driver did not notice\n%s%s", o.stdout, o.stderr)
			}
			if !regexp.MustCompile(tt.want).MatchString(o.stderr) {
				t.Errorf("the driver did not say %q but\n%s%s", tt.want, o.stdout, o.stderr)
			}
		})
	}
}

// TestPatterns: any number of ranks, channels that share a thread, and repetitions that overlap.
func TestPatterns(t *testing.T) {
	onceProved(t)
	driver, plugin := programs(t)
	for _, ranks := range []string{"1", "2", "3", "4", "5", "8"} {
		for _, check := range []string{"all", "once"} {
			t.Run(ranks+" "+check, func(t *testing.T) {
				if ranks != "1" && ranks != "3" && ranks != "5" || check != "all" {
					require.Full(t, "the same test of 1, 3 and 5 ranks")
				}
				t.Parallel()
				r := parse(t, run(t, nil, driver, "--plugin", plugin, "--spawn", ranks, "--work", "allreduce,tree,doubling",
					"--min", "4", "--max", "200K", "--factor", "19", "--chunk", "4K", "--comms", "2", "--channels", "3",
					"--iters", "4", "--check", check, "--json", "-"))
				if len(r.Results) != 12 || r.Communicators != 2 {
					t.Errorf("%d results of %d communicators", len(r.Results), r.Communicators)
				}
			})
		}
	}
}

// TestRMA: every version of a correct RMA interface is called as NCCL's host RMA and its GIN proxy call it, with windows in memory of each kind; one
// that is not offered has no devices; and a rank that dies is reported.
func TestRMA(t *testing.T) {
	onceProved(t)
	driver, plugin := programs(t)
	for _, tt := range []struct{ rma, memory, windows, ranks string }{
		{"v13", "cuda", "host", "3"}, {"v14", "dmabuf", "data", "2"}, {"v15", "dmabuf", "all", "3"}, {"newest", "cuda", "all", "1"},
	} {
		t.Run(tt.rma+" "+tt.memory+" "+tt.windows, func(t *testing.T) {
			t.Parallel()
			o := run(t, []string{"SELFPLUGIN_GPU=cuda,dmabuf"}, driver, "--plugin", plugin, "--spawn", tt.ranks, "--work", "rma,rmaorder", "--chunk", "16K",
				"--messages", "40", "--rma", tt.rma, "--memory", tt.memory, "--windows", tt.windows, "--libcuda", libcuda(t), "--json", "-")
			r := parse(t, o)
			ranks := int(tt.ranks[0] - '0')
			if len(r.Results) != 1 || r.Results[0].Work != "rma" || r.Results[0].Messages != ranks*3*3*40 {
				t.Errorf("results %+v", r.Results)
			}
		})
	}
	t.Run("not offered", func(t *testing.T) {
		t.Parallel()
		parse(t, run(t, nil, driver, "--plugin", plugin, "--spawn", "2", "--work", "rma", "--rma", "none", "--json", "-"))
	})
	for seed := range 3 {
		t.Run(fmt.Sprintf("a rank dies, seed %d", seed), func(t *testing.T) {
			t.Parallel()
			o := run(t, []string{"SELFPLUGIN_GPU=cuda"}, driver, "--plugin", plugin, "--spawn", "3", "--work", "rmadie", "--chunk", "16K", "--memory", "cuda",
				"--libcuda", libcuda(t), "--seed", fmt.Sprint(seed), "--die-rank", fmt.Sprint(seed))
			if o.status != 0 || strings.Count(o.stderr, "and every operation to it said so") != 2 {
				t.Errorf("status %d\n%s%s", o.status, o.stdout, o.stderr)
			}
		})
	}
}

func TestDie(t *testing.T) {
	onceProved(t)
	driver, plugin := programs(t)
	for _, args := range [][]string{
		{"--die-rank", "0"}, {"--die-rank", "1"}, {"--orphans", "2"}, {"--comms", "2", "--seed", "7"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			if args[0] == "--die-rank" {
				require.Full(t, "the same test of ranks that leave children, and of two communicators")
			}
			t.Parallel()
			args := append([]string{"--plugin", plugin, "--spawn", "3", "--work", "alltoall,die", "--max", "64K",
				"--factor", "16", "--chunk", "16K", "--die-limit-ms", "60000"}, args...) // that they are told, not how soon
			o := run(t, nil, driver, args...)
			if o.status != 0 || strings.Count(o.stderr, "died, and every connection with it said so") != 2 {
				t.Errorf("status %d\n%s", o.status, o.stderr)
			}
		})
	}
}

// TestReproducible: the same seed moves the same messages, another one others.
func TestReproducible(t *testing.T) {
	onceProved(t)
	driver, plugin := programs(t)
	soak := func(seed string) (messages int, bytes int64) {
		r := parse(t, run(t, nil, driver, "--plugin", plugin, "--spawn", "2", "--work", "soak", "--max", "64K",
			"--messages", "60", "--seed", seed, "--json", "-"))
		return r.Results[0].Messages, r.Results[0].Bytes
	}
	m1, b1 := soak("1")
	m2, b2 := soak("1")
	m3, b3 := soak("2")
	if m1 == 0 || m1 != m2 || b1 != b2 {
		t.Errorf("seed 1: %d messages, %d bytes; again: %d, %d", m1, b1, m2, b2)
	}
	if m1 == m3 && b1 == b3 {
		t.Errorf("seeds 1 and 2 both move %d messages, %d bytes", m1, b1)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// byHand starts ranks one by one, as the lab does, and returns their outcomes.
func byHand(t *testing.T, ranks int, command ...string) []outcome {
	t.Helper()
	address := freePort(t)
	outcomes := make([]outcome, ranks)
	var wait sync.WaitGroup
	for rank := range ranks {
		wait.Add(1)
		go func() {
			defer wait.Done()
			args := append(command[1:len(command):len(command)], "--rank", fmt.Sprint(rank), "--nranks", fmt.Sprint(ranks),
				"--rendezvous", address)
			outcomes[rank] = run(t, nil, command[0], args...)
		}()
	}
	wait.Wait()
	return outcomes
}

func TestRanksByHand(t *testing.T) {
	onceProved(t)
	driver, plugin := programs(t)
	for rank, o := range byHand(t, 3, driver, "--plugin", plugin, "--max", "64K", "--factor", "64") {
		if o.status != 0 {
			t.Errorf("rank %d: status %d\n%s", rank, o.status, o.stderr)
		}
		table := strings.Contains(o.stdout, "# Out of bounds values : 0 OK")
		if table != (rank == 0) {
			t.Errorf("rank %d: table %v\n%s", rank, table, o.stdout)
		}
	}
}

func TestArm64(t *testing.T) {
	onceProved(t)
	const compiler, emulator, root = "aarch64-linux-gnu-gcc", "qemu-aarch64-static", "/usr/aarch64-linux-gnu"
	require.Tools(t, require.CC, compiler, emulator)
	driver, plugin := build(t, compiler, "-O2")
	command := []string{emulator, "-L", root, driver, "--plugin", plugin, "--max", "64K", "--factor", "64",
		"--work", "allreduce,sendrecv,soak", "--messages", "20"}
	for rank, o := range byHand(t, 2, command...) {
		if o.status != 0 {
			t.Errorf("rank %d: status %d\n%s%s", rank, o.status, o.stdout, o.stderr)
		}
	}
}

func TestUsage(t *testing.T) {
	driver, plugin := programs(t)
	tests := []struct {
		name   string
		args   []string
		status int
		want   string
	}{
		{"nothing", nil, 2, "the library to load is needed"},
		{"no rank", []string{"--plugin", plugin}, 2, "--rank below --nranks is needed, or --spawn"},
		{"no rendezvous", []string{"--plugin", plugin, "--rank", "0", "--nranks", "2"}, 2, "HOST:PORT is needed"},
		{"version", []string{"--plugin", plugin, "--api", "v4"}, 2, "newest or v5 to v12 is wanted"},
		{"work", []string{"--plugin", plugin, "--work", "allreduce,play"}, 2, "--work play: no such work"},
		{"size", []string{"--plugin", plugin, "--max", "12Q"}, 2, "a size like 8, 64K or 16M is wanted"},
		{"memory", []string{"--plugin", plugin, "--memory", "gpu"}, 2, "host, cuda or dmabuf is wanted"},
		{"no CUDA", []string{"--plugin", plugin, "--memory", "cuda", "--libcuda", "/nowhere.so", "--rank", "0", "--nranks", "1"}, 1, "cannot load CUDA: /nowhere.so"},
		{"number", []string{"--plugin", plugin, "--iters", "0"}, 2, "a number from 1 to 1e+06 is wanted"},
		{"unknown", []string{"--frobnicate"}, 2, "unrecognized option"},
		{"no library", []string{"--plugin", "/nowhere.so", "--rank", "0", "--nranks", "1"}, 1, "cannot load the plugin: /nowhere.so"},
		{"no plugin", []string{"--plugin", "libc.so.6", "--rank", "0", "--nranks", "1"}, 1, "exports none of ncclNetPlugin_v12 to v5"},
		{"alone", []string{"--plugin", plugin, "--rank", "0", "--nranks", "2", "--rendezvous", "127.0.0.1:0", "--timeout", "1"}, 1, "only 1 of 2 ranks came"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := run(t, nil, driver, tt.args...)
			if o.status != tt.status || !strings.Contains(o.stderr, tt.want) {
				t.Errorf("status %d, want %d and %q in\n%s", o.status, tt.status, tt.want, o.stderr)
			}
		})
	}
	o := run(t, nil, driver, "--help")
	source, err := os.ReadFile("src/options.c")
	if err != nil {
		t.Fatal(err)
	}
	for _, option := range regexp.MustCompile(`\{"([a-z-]+)", (?:required|no)_argument`).FindAllStringSubmatch(string(source), -1) {
		if name := option[1]; name != "rendezvous-fd" && name != "help" && !strings.Contains(o.stdout, "--"+name) {
			t.Errorf("--help does not tell of --%s", name)
		}
	}
}

// TestLogger: lines appear as NCCL prints them, by its level and subsystem settings.
func TestLogger(t *testing.T) {
	driver, plugin := programs(t)
	args := []string{"--plugin", plugin, "--spawn", "1", "--work", "allreduce", "--max", "8"}
	for _, tt := range []struct {
		env  []string
		want bool
	}{
		{nil, false},
		{[]string{"NCCL_DEBUG=WARN"}, false},
		{[]string{"NCCL_DEBUG=INFO"}, true},
		{[]string{"NCCL_DEBUG=info", "NCCL_DEBUG_SUBSYS=INIT,NET"}, true},
		{[]string{"NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=NET"}, false},
		{[]string{"NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=^INIT"}, false},
	} {
		o := run(t, append([]string{"NCCL_DEBUG=", "NCCL_DEBUG_SUBSYS="}, tt.env...), driver, args...)
		got := regexp.MustCompile(`(?m)^\S+:\d+:\d+ \[0\] NCCL INFO NET/Self : loopback TCP$`).MatchString(o.stdout)
		if got != tt.want {
			t.Errorf("%v: line printed %v, want %v\n%s", tt.env, got, tt.want, o.stdout)
		}
	}
}
