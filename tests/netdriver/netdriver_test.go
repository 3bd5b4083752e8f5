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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/require"
)

// full is everything; without it a sample.
var full = require.IsFull()

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

const allWork = "allreduce,allgather,alltoall,sendrecv,tree,doubling,latency,soak,contract,tuner"

// everything runs all work on three ranks and checks that it was really done.
func everything(t *testing.T, env []string, driver, plugin, api string) {
	o := run(t, env, driver, "--plugin", plugin, "--api", api, "--spawn", "3", "--nodeid-env", "--work", allWork,
		"--max", "300K", "--chunk", "64K", "--factor", "16", "--iters", "2", "--comms", "2", "--messages", "40",
		"--json", "-")
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
}

func TestEverything(t *testing.T) {
	driver, plugin := programs(t)
	for version := 5; version <= 12; version++ {
		if !full && version != 5 && version != 8 && version != 12 {
			continue
		}
		api := fmt.Sprintf("v%d", version)
		t.Run(api, func(t *testing.T) { everything(t, nil, driver, plugin, api) })
	}
}

// TestProfiled: all is well where a profiler listens to a plugin that tells it, or that is too old to.
func TestProfiled(t *testing.T) {
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
	driver, plugin := build(t, "gcc", "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all")
	everything(t, nil, driver, plugin, "v12")
	everything(t, nil, driver, plugin, "v8")
}

// TestFaults breaks one rule of the contract at a time in the reference plugin: the driver must notice each
// one and name it. Where the driver is the one that the file "proved" names, an eighth of the faults is
// tried, another one with each commit.
func TestFaults(t *testing.T) {
	driver, plugin := programs(t)
	all := unproved(t) || full
	ring := []string{"--work", "allreduce", "--min", "4K", "--max", "4K", "--chunk", "1544"}
	tree := []string{"--work", "tree", "--channels", "2", "--min", "64K", "--max", "64K", "--chunk", "1544"}
	doubling := []string{"--work", "doubling", "--channels", "2", "--min", "64K", "--max", "64K", "--chunk", "1544"}
	pairs := []string{"--work", "sendrecv", "--min", "64K", "--max", "64K", "--chunk", "4K"}
	soak := []string{"--work", "soak", "--max", "16K", "--messages", "30"}
	contract := []string{"--work", "contract", "--timeout", "8"}
	tuner := []string{"--work", "tuner"}
	profile := []string{"--profile", "--work", "soak", "--max", "16K", "--messages", "30"}
	dies := []string{"--work", "die", "--chunk", "16K", "--die-limit-ms", "500"}
	tests := []struct {
		fault string
		args  []string
		want  string // in what the driver says
	}{
		// Contents.
		{"corrupt:20", ring, `words are wrong`},
		{"corrupt:20", pairs, `words are wrong`},
		{"corrupt:5", tree, `words are wrong`},
		{"corrupt:5", doubling, `words are wrong`},
		{"duplicate:3", tree, `words are wrong`},
		{"duplicate:3", doubling, `words are wrong`},
		{"corrupt:20", soak, `wrong from byte \d+`},
		{"shift:20", pairs, `words are wrong`},
		{"shift:20", soak, `wrong from byte 0`},
		{"tear:20", pairs, `words are wrong`},
		{"tear:20", soak, `its own bytes from offset 0 are there`},
		{"swap", pairs, `words are wrong`},
		{"swap", contract, `contract: .* wrong from byte`},
		{"duplicate:3", pairs, `words are wrong`},
		{"truncate:20", ring, `bytes were sent, test reports`},
		{"truncate:20", soak, `test reports a size of`},
		{"lose:20", append([]string{"--timeout", "2"}, pairs...), `no progress for 2 s`},
		// Memory.
		{"overrun:20", soak, `memory outside of the messages was written`},
		{"overrun", contract, `receive buffer was written outside of any message`},
		{"overrun:5", ring, `behind its \d+ was written`},
		{"underrun:20", pairs, `bytes before it were written`},
		{"misplace:5", ring, `words are wrong`},
		{"send-scribble:20", soak, `send buffer was written`},
		{"dereg-late", contract, `byte 0 was written after deregMr had returned`},
		{"dereg-gone", contract, `ended by signal 11`},
		// Completions.
		{"early", pairs, `words are wrong`},
		{"size-capacity:2", ring, `bytes were sent, test reports`},
		{"sizes-unset:20", ring, `test reports -\d+`},
		{"sizes-extra:20", ring, `test wrote sizes\[1\] of a request with 1`},
		{"done-unset", pairs, `test returned ncclSuccess and left \*done as it was`},
		{"done-two:9", ring, `test set \*done to 2`},
		// Requests.
		{"request-stale:9", ring, `isend returned ncclSuccess and left \*request as it was`},
		{"hint-kept", contract, `irecv returned ncclSuccess and left \*request as it was`},
		{"full-error", contract, `irecv returned ncclInternalError`},
		{"few-requests", contract, `irecv took 4 requests`},
		{"tags-oldest", contract, `a message for a receive behind a half-matched group: receive 0 is not done`},
		{"isend-idle", contract, `a sender that only calls isend stands still`},
		{"tags-ignored", contract, `contract: groups, .*: wrong from byte`},
		// Connections.
		{"connect-unset", ring, `connect returned ncclSuccess and left \*sendComm as it was`},
		{"connect-in-progress", ring, `connect returned ncclInProgress`},
		{"connect-blocks", append([]string{"--max-call-ms", "200"}, ring...), `connect took \d{3,}\.\d+ ms; --max-call-ms allows 200`},
		{"accept-blocks", append([]string{"--max-call-ms", "200"}, ring...), `accept took \d{3,}`},
		{"handle-long", ring, `listen wrote byte 128 of a handle of 128`},
		{"leak", contract, `descriptors after 5 connections, \d+ after 12`},
		// The device.
		{"props-unset", contract, `latency is not always written`},
		{"name-moves", contract, `name is not always written or not stable`},
		{"name-twice", contract, `devices 0 and 1 are both named self0`},
		{"devices-flap:9", contract, `2 devices first, then 1`},
		// Memory registration and the process.
		{"dereg-null", contract, `deregMr\(sendComm, NULL\) returned ncclInvalidArgument`},
		{"close-null", contract, `closeSend of NULL returned ncclInvalidArgument`},
		{"close-twice", contract, `closeSend of what is closed returned ncclInvalidArgument`},
		{"closed-works", contract, `isend of NULL returned ncclSuccess`},
		{"finalize-null", contract, `finalize\(NULL\) returned ncclInternalError`},
		{"reinit:9", contract, `init failed: ncclInternalError`},
		{"env-early", contract, `NCCL_IB_TIMEOUT=garbage: init accepted it`},
		{"fork-open", contract, `in a forked child devices does not return ncclSystemError`},
		// The tuner.
		{"tuner-init", tuner, `tuner init returned ncclInternalError`},
		{"tuner-error:5", tuner, `getCollInfo returned ncclSystemError \(2\), and NCCL would abort`},
		{"tuner-unset", tuner, `an output is as it was`},
		{"tuner-many:9", tuner, `65 channels`},
		{"tuner-gather", tuner, `channels for an all-gather, and the communicator may have fewer`},
		{"tuner-revives", tuner, `is not possible, and became 0`},
		{"tuner-nothing-left", tuner, `nothing that was possible is left`},
		{"tuner-width", tuner, `a cell of an algorithm that NCCL lacks was written`},
		{"tuner-behind", tuner, `memory behind the table of costs was written`},
		{"tuner-differs", tuner, `another rank has other answers`},
		{"tuner-lossy", tuner, `a ring is chosen where a tree is possible`},
		{"tuner-foreign", tuner, `8 ranks on 2 nodes: it interferes`},
		{"tuner-alone", tuner, `keeps out without the network: it interferes`},
		{"tuner-shared", tuner, `a communicator beside others has other answers`},
		{"tuner-fork", tuner, `in a forked child init does not return ncclSystemError`},
		{"tuner-chunk", tuner, `the chunk of \d+ became`},
		{"tuner-slow", tuner, `getCollInfo takes \d+\.\d times a look-up`},

		// The profiler.
		{"profile-none:20", profile, `profiler: there was no event of a message`},
		{"profile-twice:20", profile, `profiler: (the events of a message of \d+ bytes tell of|2 events of an empty message)`},
		{"profile-length:20", profile, `profiler: the events of a message of \d+ bytes tell of`},
		{"profile-open:20", profile, `profiler: event 0 of a message is under way, and test says that it is done`},
		{"profile-stop:20", profile, `profiler: an event stops that is not under way`},
		{"profile-unmade", profile, `profiler: event \(nil\) stops, which is none`},
		{"profile-late:20", profile, `profiler: an event of a message starts after test has said that it is done`},
		{"profile-isend:20", profile, `profiler: called outside of test`},
		{"profile-old", append([]string{"--api", "v10"}, profile...), `profiler: NCCL takes no events in test before interface 11`},
		{"profile-preset:20", profile, `profiler: the handle of an event is 0x[0-9a-f]+ before it starts`},
		{"profile-step:20", profile, `profiler: an event of step \(nil\), which is none`},
		{"profile-many", profile, `profiler: more than 8 events of a message`},
		{"profile-kind:20", profile, `profiler: nothing is known of network events of kind 0x1`},
		{"profile-descriptor:20", profile, `profiler: event type 1, and descriptor -1 is not a socket`},
		{"profile-operation:20", profile, `profiler: operation [01] of a`},

		// A dead peer.
		{"remote-as-system", dies, `returned ncclSystemError \(2\), ncclRemoteError \(6\) is wanted`},
		{"remote-as-system", contract, `ncclSystemError \(2\) when the peer had gone`},
		{"end-refuses", contract, `isend that was granted before the receiver closed returned ncclRemoteError`},
		{"remote-silent", dies, `went on without an error for 500 ms after its death`},
		{"remote-slow", dies, `went on without an error for 500 ms after its death`},
		{"fork-fds", append([]string{"--orphans", "1"}, dies...), `went on without an error for 500 ms`},
	}
	share := commit(t)
	for i, tt := range tests {
		if !all && (i+int(share))%8 != 0 {
			continue
		}
		t.Run(tt.fault+" "+tt.args[1], func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--plugin", plugin, "--spawn", "2", "--timeout", "20"}, tt.args...)
			o := run(t, []string{"SELFPLUGIN_FAULT=" + tt.fault}, driver, args...)
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
	driver, plugin := programs(t)
	for _, ranks := range []string{"1", "2", "3", "4", "5", "8"} {
		for _, check := range []string{"all", "once"} {
			t.Run(ranks+" "+check, func(t *testing.T) {
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

func TestDie(t *testing.T) {
	driver, plugin := programs(t)
	for _, args := range [][]string{
		{"--die-rank", "0"}, {"--die-rank", "1"}, {"--orphans", "2"}, {"--comms", "2", "--seed", "7"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
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
