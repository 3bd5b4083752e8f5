package main

import (
	"bytes"
	"encoding/json"
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

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
	"ncclmesh/tools/ncclmesh/bench"
	"ncclmesh/tools/ncclmesh/topo"
)

// asCommand in the environment makes a process of this program the command.
const asCommand = "TEST_AS_NCCLMESH"

// TestMain is the command too, where it is started as an agent or as a rank: on nodes this program is ncclmesh.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "agent" || len(os.Args) == 3 && os.Args[1] == "load" || os.Getenv(asCommand) != "" {
		os.Exit(run(&system{os.Environ(), os.Stdout, os.Stderr}, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// line has two halves between a and b, a cable between b and c, over TCP alone as far as c is
// concerned, and a port of c with nothing in it.
const line = `
port a r0 netdev f0 addr 192.168.3.1/24 cage p0 image A
port a r1 netdev g0 addr 192.168.4.1/24 cage p0 image A
port b r0 netdev f0 addr 192.168.3.2/24 cage p0 image B
port b r1 netdev g0 addr 192.168.4.2/24 cage p0 image B
netif b e1 addr 192.168.2.1/24
netif c e1 addr 192.168.2.2/24
port c r2 netdev f2 cage p2
link a:r0 b:r0
link a:r1 b:r1
link b:e1 c:e1
`

// nodes brings a fabric up, and returns what runs the command so that it reaches the nodes.
func nodes(t *testing.T, topology string) (f *fabric.Fabric, command func(args ...string) (status int, stdout, stderr string)) {
	t.Helper()
	dir, err := fabric.Build("nodes", "fakeverbs")
	if err == nil {
		f, err = fabric.Up(fabric.Tools(dir), topology)
	}
	if errors.Is(err, fabric.ErrUnable) {
		require.Skip(t, require.Netns, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "ncclmesh")); err != nil {
		t.Fatal(err)
	}
	// A node's agents have the variables of its own in the file env.NODE, where that is there.
	reach := filepath.Join(bin, "reach")
	script := fmt.Sprintf("#!/bin/sh\nnode=$1; shift\n[ ! -f %[1]s/env.$node ] || export $(cat %[1]s/env.$node)\nexec %[2]s/fakenet exec -d %[1]s $node \"$@\"\n", f.Dir, f.Tools)
	if err := os.WriteFile(reach, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	environ := append(os.Environ(), asCommand+"=1", "PATH="+bin+":"+os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0",
		"NCCLMESH_SSH="+reach,
		"NCCL_SOCKET_IFNAME="+fabric.ManagementIface, "NCCL_MESH_PROOF_WAIT=3000")
	return f, func(args ...string) (int, string, string) {
		var stdout, stderr bytes.Buffer
		status := run(&system{environ, &stdout, &stderr}, args)
		return status, stdout.String(), stderr.String()
	}
}

// Cables are found and proved, one half at a time; what is unplugged is told,
// and what is not as expected; a host that is not there costs nobody else.
func TestTopo(t *testing.T) {
	t.Parallel()
	f, command := nodes(t, line)
	const whole = `a p0 ═ p0 b   100 Gb/s in 2 halves   MTU 1500   RDMA, both halves work
b e1 ─ e1 c   speed unknown          MTU 1500   TCP only: b has no RDMA device there
c f2          its interface is in another network namespace, and no other node sees it
a ↔ c share no cable: through b
note: c: TCP is used, slower than RDMA, although there is r2:1 (f2): no usable port: r2:1 (f2) is DOWN; check cables and drivers with ibv_devinfo
note: c: interface f2 of r2 is not in this network namespace: run the container with --network host; until then only the default GIDs of its adapter can be tried
`
	status, stdout, stderr := command("topo", "a", "b", "c")
	if diff := cmp.Diff(whole, stdout); status != 0 || diff != "" || stderr != "" {
		t.Fatalf("status %d, %s, (-want +got):\n%s", status, stderr, diff)
	}
	expect, svg := filepath.Join(t.TempDir(), "expect"), filepath.Join(t.TempDir(), "svg")
	if err := os.WriteFile(expect, []byte("a:p0 b:p0\nb:e1 c:f2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Fault("unplug", "a:r1"); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr = command("topo", "a", "b", "c", "--expect", expect, "--svg", svg)
	if status != statusFailed || !strings.Contains(stdout, "RDMA, 1 of 2 halves work: g0 of a is DOWN\n") ||
		!strings.HasSuffix(stdout, "\nmove the plug in c:e1 to c:f2\n") || !strings.Contains(stderr, "not cabled as "+expect+" says") {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
	if drawn, err := os.ReadFile(svg); err != nil || !bytes.Contains(drawn, []byte("through b")) {
		t.Errorf("%s, %v", drawn, err)
	}
	status, stdout, stderr = command("topo", "b", "nobody", "c", "--json")
	var m topo.Map
	if err := json.Unmarshal([]byte(stdout), &m); err != nil || status != statusFailed || len(m.Cables) != 1 || len(m.Nodes) != 3 || m.Schema != topo.Schema {
		t.Errorf("status %d, %v, %s", status, err, stdout)
	}
	if !strings.HasPrefix(stderr, "ncclmesh: nobody: ") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("it says %q", stderr)
	}
}

// Ranks meet at an address of the first host that the others reach, not at its name, which may mean the loopback interface
// there.
func TestRunWithoutSSH(t *testing.T) {
	t.Parallel()
	_, command := nodes(t, line)
	status, stdout, stderr := command("run", "--no-plugin", "a", "b", "--", "sh", "-c", "echo meet at $MASTER_ADDR")
	if status != 0 || !strings.Contains(stdout, "a: meet at 10.99.0.1\n") || !strings.Contains(stdout, "b: meet at 10.99.0.1\n") {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
}

// Every cable is measured half by half and whole, and the way through a relay; nothing arrives wrong.
func TestBenchLink(t *testing.T) {
	t.Parallel()
	_, command := nodes(t, line)
	status, stdout, stderr := command("bench", "link", "a", "b", "c", "--time", "20ms", "--size", "64K", "--json")
	var r bench.LinkReport
	err := json.Unmarshal([]byte(stdout), &r)
	below := slices.ContainsFunc(r.Links, func(l bench.Link) bool { return len(l.Below) > 0 }) // as on most machines that run this
	if err != nil || (status != 0) != below || strings.Contains(stderr, "are below 75 %") != below {
		t.Fatalf("status %d, %v, %s%s", status, err, stdout, stderr)
	}
	var got []string
	for _, l := range r.Links {
		got = append(got, l.Ends[0]+" "+l.Ends[1]+" "+l.Over+": "+l.Lanes)
		if l.Forth <= 0 || l.Back <= 0 || l.Both <= 0 || l.Median <= 0 || l.P99 < l.Median || l.Wrong != 0 || l.Error != "" {
			t.Errorf("%+v", l)
		}
	}
	want := []string{
		"a:p0 b:p0 f0 – f0: RDMA r0:1",
		"a:p0 b:p0 g0 – g0: RDMA r1:1",
		"a:p0 b:p0 all 2 together: RDMA r0:1, RDMA r1:1",
		"b:e1 c:e1 e1 – e1: TCP e1",
		"a c through b: TCP ",
	}
	for i := range min(len(got), len(want)) {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("link %d is %q, want %q", i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d links, want %d", len(got), len(want))
	}
}

// Collectives sum up and arrive whole, between neighbours and through a relay.
func TestBenchColl(t *testing.T) {
	t.Parallel()
	_, command := nodes(t, line)
	status, stdout, stderr := command("bench", "coll", "a", "b", "c", "-b", "4", "-e", "1100000", "-f", "512", "-n", "2", "-w", "1")
	if status != 0 || stderr != "" || !strings.Contains(stdout, "# Out of bounds values : 0 OK") {
		t.Fatalf("status %d, %s%s", status, stdout, stderr)
	}
	rows := regexp.MustCompile(`(?m)^ +(\d+) +\d+ +\w+ +\w+ +-1 +[\d.]+ +[\d.]+ +[\d.]+ +0$`).FindAllStringSubmatch(stdout, -1)
	var sizes []string
	for _, r := range rows {
		sizes = append(sizes, r[1])
	}
	if diff := cmp.Diff([]string{"4", "2048", "1048576", "3", "2046", "1048575", "4", "2048", "1048576"}, sizes); diff != "" {
		t.Errorf("%s\nsizes (-want +got):\n%s", stdout, diff)
	}
	// Messages that do not fit into what is on the way at once, all at the same time.
	if status, stdout, stderr := command("bench", "coll", "a", "b", "c", "--op", "alltoall", "-b", "3M", "-e", "3M", "-n", "1", "-w", "0"); status != 0 {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
}

// With hosts a report has a page with the findings, the cables and the rates, and nothing of that is missing.
func TestReportOfHosts(t *testing.T) {
	t.Parallel()
	_, command := nodes(t, line)
	page := filepath.Join(t.TempDir(), "mesh.html")
	status, stdout, stderr := command("report", "a", "b", "--bench", "--html", page, "--list")
	if status != 0 || stderr != "" || !strings.Contains(stdout, "\npage.html ") {
		t.Fatalf("status %d, %s%s", status, stderr, stdout)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<h1>a, b</h1>", "machine-id-cloned", "<h2>Cables</h2>\n<svg", "<h2>Measured</h2>\n<svg", "what link and PCIe allow"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// What is wrong with a call of these commands is one clear line, and nobody is asked.
func TestHostsWrongly(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ args, want string }{
		{"topo -- -oProxyCommand=x", "would be an option to ssh"},
		{"topo a a", "host a is named twice"},
		{"topo a b --expect /no/such", "--expect /no/such: open /no/such"},
		{"topo a b --expect " + empty, "no cable"},
		{"topo a b --json --dot", "none of the others can be"},
		{"bench link", "want the names of hosts: ncclmesh bench link HOST... [flags]"},
		{"bench link a --size 4T", "--size 4T: want a number of bytes"},
		{"bench link a --size K", "--size K: want"},
		{"bench link a --time 0s", "--time 0s: want more than 0"},
		{"bench coll a b --op broadcast", "--op broadcast: want of all_reduce, alltoall, sendrecv"},
		{"bench coll a b -b 2M -e 1M", "--minbytes 2M is more than --maxbytes 1M"},
		{"bench coll a b -f 1", "--stepfactor 1: want 2 or more"},
		{"bench coll a b -n 0", "--iters 0"},
		{"bench nccl a b --op alltoall", "--op alltoall: want of all_reduce, all_gather, reduce_scatter, broadcast"},
		{"bench nccl a b --gpus -1", "--gpus -1: want 1 or more, or 0 for all"},
		{"bench nccl a b --no-plugin --library x", "--no-plugin and --library are both given"},
		{"bench nccl a b -f 1", "--stepfactor 1: want 2 or more"},
	}
	for _, tt := range tests {
		var stdout, stderr bytes.Buffer
		if status := run(&system{nil, &stdout, &stderr}, strings.Fields(tt.args)); status != statusUsage || stdout.Len() > 0 || !strings.Contains(stderr.String(), tt.want) {
			t.Errorf("%s: status %d, it says %q, want %q", tt.args, status, stderr.String(), tt.want)
		}
	}
}

func TestSizeOf(t *testing.T) {
	for text, want := range map[string]int{"8": 8, "64K": 64 << 10, "4M": 4 << 20, "64G": 64 << 30, "65G": 0, "-1": 0, "": 0, "1KK": 0, "99999999999999999999": 0} {
		if got, err := sizeOf("--size", text); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
}

// Ranks that a launcher has started need no ssh: rank 0 tells of all nodes, and the others end with it.
func TestRankEnv(t *testing.T) {
	t.Parallel()
	f, _ := nodes(t, line)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := func(rank, local int, node string, more ...string) *exec.Cmd {
		args := append([]string{"exec", "-d", f.Dir, node, self, "topo", "--rank-env"}, more...)
		c := exec.Command(filepath.Join(f.Tools, "fakenet"), args...)
		c.Env = append(os.Environ(), asCommand+"=1", "GORACE=atexit_sleep_ms=0", "NCCL_SOCKET_IFNAME="+fabric.ManagementIface, "NCCL_MESH_PROOF_WAIT=3000",
			"NCCL_MESH_KEY=the key of all nodes", fmt.Sprintf("RANK=%d", rank), "WORLD_SIZE=4", fmt.Sprintf("LOCAL_RANK=%d", local), "MASTER_ADDR=10.99.0.1")
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	ranks := []*exec.Cmd{start(0, 0, "a"), start(1, 1, "a"), start(2, 0, "b"), start(3, 0, "c")}
	for i, c := range ranks {
		err := c.Wait()
		out := c.Stdout.(*bytes.Buffer).String()
		if err != nil {
			t.Errorf("rank %d: %v\n%s", i, err, out)
		}
		if i > 0 && out != "" {
			t.Errorf("rank %d says %q", i, out)
		}
		for _, want := range []string{`p0 ═ p0 rank-2 .*RDMA, both halves work`, `rank-2 e1 ─ e1 rank-3 `, `↔ rank-3 share no cable: through rank-2`} {
			if i == 0 && !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
	}
}
