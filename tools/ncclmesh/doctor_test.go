package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
	"ncclmesh/tools/ncclmesh/doctor"
)

// halved has two halves between a and b, which see nothing wrong with each other.
const halved = `
port a r0 netdev f0 addr 192.168.1.1/24 cage p0 image A mtu 9000
port a r1 netdev g0 addr 192.168.2.1/24 cage p0 image A mtu 9000
port b r0 netdev f0 addr 192.168.1.2/24 cage p1 image B mtu 9000
port b r1 netdev g0 addr 192.168.2.2/24 cage p1 image B mtu 9000
link a:r0 b:r0
link a:r1 b:r1
`

// read is what a run has written as JSON.
func read(t *testing.T, stdout string) (r doctor.Report) {
	t.Helper()
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || r.Schema != doctor.Schema {
		t.Fatalf("%v: %s", err, stdout)
	}
	return r
}

// evidence is what a report shows: severity, where and evidence.
func evidence(t *testing.T, stdout string) (said []string) {
	t.Helper()
	for _, f := range read(t, stdout).Findings {
		if f.Shown() {
			said = append(said, string(f.Severity)+" "+f.Where()+": "+f.Evidence)
		}
	}
	return said
}

// found is what a report shows, but for notes and what is not known: check and where.
func found(t *testing.T, stdout string) (said []string) {
	t.Helper()
	for _, f := range read(t, stdout).Findings {
		if f.Shown() && (f.Severity == doctor.Fail || f.Severity == doctor.Warn) {
			said = append(said, string(f.Severity)+" "+f.Check+" "+f.Where())
		}
	}
	return said
}

// Each fault is found and named, and what follows from it is not shown: faults of the fake
// library, of interfaces and addresses, of the environment, and of hosts that are not there.
func TestDoctorFindsFaults(t *testing.T) {
	t.Parallel()
	f, command := nodes(t, halved)
	fault := func(args ...string) func(*testing.T) {
		return func(t *testing.T) {
			if _, err := f.Fault(args...); err != nil {
				t.Fatal(err)
			}
		}
	}
	ip := func(node, args string) func(*testing.T) {
		return func(t *testing.T) {
			if out, err := f.Command(t.Context(), node, "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
				t.Fatalf("ip %s: %v: %s", args, err, out)
			}
		}
	}
	// The other program that holds the mesh follows a fault by itself.
	carrier := func(nodes ...string) func(*testing.T) {
		return func(t *testing.T) {
			for _, node := range nodes {
				if out, err := f.Command(t.Context(), node, "sh", "-c", "until [ $(cat /sys/class/net/f0/carrier) = 1 ]; do sleep 0.01; done").CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
		}
	}
	all := func(do ...func(*testing.T)) func(*testing.T) {
		return func(t *testing.T) {
			for _, f := range do {
				f(t)
			}
		}
	}
	env := func(node string, variables ...string) func(*testing.T) { // none: as all have
		return func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(f.Dir, "env."+node), []byte(strings.Join(variables, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	type test struct {
		name       string
		harm, mend func(*testing.T)
		want       []string
	}
	tests := []test{
		{"nothing", nil, nil, nil},
		{"a cable", fault("unplug", "a:r0"), all(fault("plug", "a:r0"), carrier("a", "b")), []string{"fail port-down a:f0", "fail port-down b:f0"}},
		{"packets of RDMA, an address, a route", all(fault("stall", "port=a:r1"), ip("b", "addr add 192.168.2.1/24 dev f0"), ip("a", "route add 192.168.0.0/20 dev "+fabric.ManagementIface)),
			all(fault("clear"), ip("b", "addr del 192.168.2.1/24 dev f0"), ip("a", "route del 192.168.0.0/20")),
			[]string{"fail addr-duplicate b:f0", "warn subnet-overlap a:f0", "warn subnet-overlap a:g0", "warn roce-filtered a:p0 ═ b:p1"}},
		{"a setting of one node", env("a", "NCCL_IB_HCA=r0"), env("a"), []string{"warn port-left-out a:p0 ═ b:p1"}},
	}
	if require.IsFull() {
		tests = append(tests, []test{
			{"TCP on one node", env("b", "NCCL_MESH_TRANSPORT=tcp"), env("b"), []string{"warn port-left-out a:p0 ═ b:p1", "warn port-left-out a:p0 ═ b:p1"}},
			{"devices of another node", env("b", "NCCL_IB_HCA=mlx5_0"), env("b"), []string{"fail env-invalid b"}},
			{"registrations", fault("verb", "name=reg_mr", "errno=ENOMEM", "node=b"), fault("clear"), []string{"fail regmr-enomem b"}},
			{"the device", fault("verb", "name=open_device", "errno=EACCES", "node=b"), fault("clear"), []string{"fail uverbs-denied b:f0", "fail uverbs-denied b:g0"}},
			{"an MTU with which RDMA has its full packets", all(ip("a", "link set f0 mtu 4200"), ip("b", "link set f0 mtu 4200")), all(ip("a", "link set f0 mtu 9000"), ip("b", "link set f0 mtu 9000")), nil},
			{"both halves of a cage", all(ip("a", "link set f0 down"), ip("a", "link set g0 down")), all(ip("a", "link set f0 up"), ip("a", "link set g0 up"), carrier("a", "b")),
				[]string{"fail port-down a:f0", "fail port-down a:g0", "fail port-down b:f0", "fail port-down b:g0"}},
			{"a bridge", all(ip("a", "link add br0 type bridge"), ip("a", "link set br0 up"), ip("a", "link set f0 master br0"), ip("a", "addr del 192.168.1.1/24 dev f0"), ip("a", "addr add 192.168.1.1/24 dev br0")),
				all(ip("a", "link del br0"), ip("a", "addr add 192.168.1.1/24 dev f0")), []string{"fail port-enslaved a:f0"}},
			{"a route to nowhere", ip("a", "route add blackhole 192.168.1.2/32"), ip("a", "route del blackhole 192.168.1.2/32"), []string{"fail route-wrong a:f0"}},
			{"the MTU of one end", ip("a", "link set f0 mtu 1500"), ip("a", "link set f0 mtu 9000"),
				[]string{"warn mtu-small a:f0", "warn mtu-mismatch a:p0 ═ b:p1"}},
		}...)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.harm != nil {
				tt.harm(t)
				defer tt.mend(t)
			}
			// Namespaces of one machine have its id.
			status, stdout, stderr := command("doctor", "a", "b", "--json", "--ignore", "machine-id-cloned,memlock,mem-low")
			if diff := cmp.Diff(tt.want, found(t, stdout)); diff != "" {
				t.Errorf("found (-want +got):\n%s%s", diff, stderr)
			}
			if want := min(len(tt.want), 1); status != want {
				t.Errorf("status %d, want %d: %s", status, want, stderr)
			}
		})
	}
}

// Rings of nodes with which nothing is wrong are silent, with RDMA and without.
func TestDoctorOfHealthyMeshes(t *testing.T) {
	require.Full(t, "tools/ncclmesh TestDoctorFindsFaults, TestDoctorOfSockets")
	t.Parallel()
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for _, n := range []int{2, 3, 4, 8} {
		ring := fabric.Ring(names[:n]...)
		for kind, mesh := range map[string]fabric.Mesh{"RDMA": ring, "sockets": ring.Plain()} {
			_, command := nodes(t, mesh.Topology())
			status, stdout, stderr := command(append([]string{"doctor", "--json", "--ignore", "machine-id-cloned,memlock,mem-low"}, names[:n]...)...)
			if said := found(t, stdout); status != 0 || said != nil {
				t.Errorf("%d nodes, %s: status %d, %q, %s", n, kind, status, said, stderr)
			}
		}
	}
}

// Without RDMA, a setting of one node that leaves the only cable out is the one finding, although nothing is heard on it.
func TestDoctorFindsSettings(t *testing.T) {
	t.Parallel()
	f, command := nodes(t, "netif a e1 addr 192.168.2.1/24\nnetif b e1 addr 192.168.2.2/24\nlink a:e1 b:e1\n")
	tests := []struct{ setting, want string }{{"NCCL_SOCKET_IFNAME=^e1", "fail port-left-out a:e1 ═ b:e1"}}
	if require.IsFull() {
		tests = append(tests, []struct{ setting, want string }{
			{"", ""},
			{"NCCL_MESH_IFNAME=^e1", "fail port-left-out a:e1 ═ b:e1"},
			{"NCCL_MESH_IFNAME=" + fabric.ManagementIface, "fail port-left-out a:e1 ═ b:e1"},
			{"NCCL_MESH_TRANSPORT=rdma", "fail port-left-out a:e1 ═ b:e1"},
		}...)
	}
	for _, tt := range tests {
		if err := os.WriteFile(filepath.Join(f.Dir, "env.a"), []byte(tt.setting), 0o600); err != nil {
			t.Fatal(err)
		}
		_, stdout, stderr := command("doctor", "a", "b", "--json", "--ignore", "machine-id-cloned,memlock,mem-low")
		if got := strings.Join(found(t, stdout), "\n"); got != tt.want {
			t.Errorf("%s: found %q, want %q: %s", tt.setting, got, tt.want, stderr)
		}
	}
}

// looped has a cable that leads back to its node.
const looped = `
port a r2 netdev f2 cage p2 image A
port a r3 netdev f3 cage p3 image A
link a:r2 a:r3
`

// A host that is not there is a finding, and costs the others nothing; so is a cable that leads
// back; what is expected of the cables is compared; JUnit's file has a test for each check.
func TestDoctorOfHosts(t *testing.T) {
	t.Parallel()
	_, command := nodes(t, halved+looped)
	expect, junit := filepath.Join(t.TempDir(), "expect"), filepath.Join(t.TempDir(), "junit.xml")
	if err := os.WriteFile(expect, []byte("a:p0 b:p7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := command("doctor", "a", "nobody", "b", "--junit", junit)
	if status != statusFailed || stderr != "" || !strings.HasPrefix(stdout, "FAIL ssh-failed  nobody  ") || !strings.Contains(stdout, "\nFAIL cable-loop  a:f2, a:f3  ") || !strings.Contains(stdout, "\n3 nodes, 1 cable, ") {
		t.Errorf("status %d, %s%s", status, stderr, stdout)
	}
	var suite struct {
		Tests int                     `xml:"tests,attr"`
		Cases []struct{ Name string } `xml:"testcase"`
	}
	if text, err := os.ReadFile(junit); err != nil || xml.Unmarshal(text, &suite) != nil || suite.Tests != len(doctor.Checks) || len(suite.Cases) != suite.Tests {
		t.Errorf("%v, %+v", err, suite)
	}
	status, stdout, _ = command("doctor", "a", "b", "--expect", expect, "--only", "cabling-differs", "--strict")
	if status != statusFailed || !strings.Contains(stdout, "b has no port p7") { // which is unknown, and counts here
		t.Errorf("status %d, %s", status, stdout)
	}
	status, _, stderr = command("doctor", "nobody", "nowhere")
	if status != statusUsage || !strings.Contains(stderr, "no host could be asked") {
		t.Errorf("status %d, %s", status, stderr)
	}
}

// With --bench cables are measured: between these no processor fills 100 Gb/s, which is a failure, or where other programs take the
// processors not known.
func TestDoctorMeasures(t *testing.T) {
	require.Full(t, "tools/ncclmesh TestBenchLink")
	t.Parallel()
	_, command := nodes(t, halved)
	status, stdout, stderr := command("doctor", "a", "b", "--bench", "--only", "cable-slow", "--strict")
	if n := strings.Count(strings.Join(strings.Fields(stdout), " "), "Gb/s one way over "); status != statusFailed || n != 2 {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
}

// On a node alone nothing is needed: the report says what nobody could see.
func TestDoctorAlone(t *testing.T) {
	t.Parallel()
	sys := func(environ ...string) (*system, *strings.Builder) {
		var out strings.Builder
		return &system{environ, &out, &out}, &out
	}
	s, out := sys("NCCL_IB_GID_INDEX=")
	if status := run(s, []string{"doctor", "--only", "gid-pinned-empty", "--json"}); status != statusFailed ||
		!slices.ContainsFunc(found(t, out.String()), func(f string) bool { return strings.HasPrefix(f, "warn gid-pinned-empty ") }) {
		t.Errorf("status %d: %s", status, out)
	}
	s, out = sys("NCCL_IB_GID_INDEX=")
	if status := run(s, []string{"doctor", "--only", "gid-pinned-empty", "--ignore", "gid-pinned-empty"}); status != 0 || !strings.HasPrefix(out.String(), "all is well: 1 node in ") || !strings.HasSuffix(out.String(), "\n1 ignored\n") {
		t.Errorf("status %d: %s", status, out)
	}
	for _, id := range []string{"port-down", "memlock"} {
		s, out = sys()
		if status := run(s, []string{"explain", id}); status != 0 || !strings.HasPrefix(out.String(), "# "+id+"\n") {
			t.Errorf("status %d: %s", status, out)
		}
	}
}

// What is wrong with a call is one line, and status 2.
func TestDoctorWrongly(t *testing.T) {
	t.Parallel()
	tests := []struct{ args, want string }{
		{"explain port-dwon", `there is no check "port-dwon"; did you mean port-down?`},
		{"doctor --only mtu", `there is no check "mtu"; did you mean mtu-small?`},
		{"explain MEMLOCK", `there is no check "MEMLOCK"; did you mean memlock?`},
		{"explain nothing", "there is no check \"nothing\": `ncclmesh explain` lists all"},
		{"doctor --ignore nothing-at-all", "there is no check \"nothing-at-all\": `ncclmesh explain` lists all"},
		{"doctor --pid -4", "--pid -4: want the number of a process"},
		{"doctor --pid 4 a", "--pid names a process of this node"},
		{"doctor --pid 999999999", "there is no process 999999999"},
		{"doctor --bench", "no host is named"},
		{"doctor --expect x", "no host is named"},
		{"doctor a b --expect /no/such", "--expect: open /no/such: no such file"},
		{"doctor --wait -1s", "want 0 or more"},
		{"doctor --junit /no/such/file", "--junit: open /no/such/file"},
	}
	for _, tt := range tests {
		var out, errs strings.Builder
		if status := run(&system{nil, &out, &errs}, strings.Fields(tt.args)); status != statusUsage || !strings.Contains(errs.String(), tt.want) || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%s: status %d, %q, want %q", tt.args, status, &errs, tt.want)
		}
	}
}
