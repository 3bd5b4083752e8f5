package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/require"
)

const hang = time.Minute

// On a node this program is one of the jobs below.
const jobVariable = "NCCLMESH_TEST_JOB"

func TestMain(m *testing.M) {
	Main()
	if job := os.Getenv(jobVariable); job != "" {
		if err := jobs[job](); err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var jobs = map[string]func() error{
	"greet": greet,
	"sleep": func() error {
		fmt.Println("asleep")
		time.Sleep(time.Hour)
		return nil
	},
	"status": func() error {
		if h, _ := os.Hostname(); h == "node-b" {
			os.Exit(7)
		}
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	},
}

// run runs a job on every node of the triangle and returns what each printed.
func run(t *testing.T, ctx context.Context, m Mesh, job string, line func(string)) (map[string][]string, []Result, error) {
	t.Helper()
	said := map[string][]string{}
	results, err := Run(ctx, Job{
		Mesh:    m,
		Command: func(string) []string { return []string{"/proc/self/exe"} },
		Env:     []string{jobVariable + "=" + job},
		Line: func(node, text string) {
			said[node] = append(said[node], text)
			if line != nil {
				line(text)
			}
		},
	})
	if errors.Is(err, ErrUnable) {
		require.Skip(t, require.Netns, err.Error())
	}
	return said, results, err
}

// greet tells the neighbours its name and learns theirs, over each interface.
func greet() error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	ifaces, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, i := range ifaces {
		if _, err := os.Stat("/sys/class/net/" + i.Name); err != nil {
			return err
		}
		addrs, err := i.Addrs()
		if err != nil {
			return err
		}
		at := slices.IndexFunc(addrs, func(a net.Addr) bool { return a.(*net.IPNet).IP.To4() != nil })
		if at < 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		own := netip.MustParsePrefix(addrs[at].String())
		fmt.Printf("%s %v mtu %d\n", i.Name, own, i.MTU)
		if i.Name == ManagementIface {
			continue
		}
		end := own.Addr().As4()
		if end[3] == 2 { // the end that asks
			if err := ask(own.Addr(), name); err != nil {
				return err
			}
		} else if err := tell(own.Addr(), name); err != nil {
			return err
		}
	}
	return nil
}

func tell(own netip.Addr, name string) error {
	ln, err := net.Listen("tcp", netip.AddrPortFrom(own, 7).String())
	if err != nil {
		return err
	}
	c, err := ln.Accept()
	if err != nil {
		return err
	}
	_, err = c.Write([]byte(name))
	return errors.Join(err, c.Close(), ln.Close())
}

func ask(own netip.Addr, name string) error {
	peer := own.As4()
	peer[3] = 1
	var c net.Conn
	var err error
	for range 500 {
		if c, err = net.Dial("tcp", netip.AddrPortFrom(netip.AddrFrom4(peer), 7).String()); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	b := make([]byte, 64)
	n, err := c.Read(b)
	fmt.Printf("%s meets %s\n", name, b[:n])
	return errors.Join(err, c.Close())
}

func TestTriangle(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	// Two of the cables: in a ring each node would wait for the one before it.
	m := Triangle()
	said, results, err := run(t, ctx, Mesh{Nodes: m.Nodes, Cables: m.Cables[:2]}, "greet", nil)
	if err != nil {
		t.Fatalf("%v\n%v", err, said)
	}
	want := map[string][]string{
		"node-a": {"mgmt 10.10.10.1/24 mtu 1500", "next 192.168.100.1/24 mtu 9000"},
		"node-b": {"mgmt 10.10.10.2/24 mtu 1500", "next 192.168.101.1/24 mtu 9000", "node-b meets node-a", "prev 192.168.100.2/24 mtu 9000"},
		"node-c": {"mgmt 10.10.10.3/24 mtu 1500", "node-c meets node-b", "prev 192.168.101.2/24 mtu 9000"},
	}
	for _, lines := range said {
		slices.Sort(lines)
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
	slices.SortFunc(results, func(a, b Result) int { return strings.Compare(a.Node, b.Node) })
	if diff := cmp.Diff([]Result{{"node-a", 0}, {"node-b", 0}, {"node-c", 0}}, results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

func TestStatus(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	said, results, err := run(t, ctx, Ring("node-a", "node-b"), "status", nil)
	if err != nil {
		t.Fatalf("%v\n%v", err, said)
	}
	slices.SortFunc(results, func(a, b Result) int { return strings.Compare(a.Node, b.Node) })
	if diff := cmp.Diff([]Result{{"node-a", 137}, {"node-b", 7}}, results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

// Cancelled, the mesh is gone: no process of it is left, and with them no
// namespace.
func TestCancel(t *testing.T) {
	before := children(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	guard := time.AfterFunc(hang, func() { cancel(errors.New("nothing was said")) })
	defer guard.Stop()
	asleep := 0
	_, _, err := run(t, ctx, Triangle(), "sleep", func(string) {
		if asleep++; asleep == 3 {
			if len(children(t)) < len(before)+4 {
				t.Errorf("the mesh's processes are not found: %v, %v before", children(t), before)
			}
			cancel(stop)
		}
	})
	if !errors.Is(err, stop) {
		t.Errorf("error %v, want %v", err, stop)
	}
	for deadline := time.Now().Add(hang); ; time.Sleep(10 * time.Millisecond) {
		left := children(t)
		if len(left) <= len(before) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %v, %v before", left, before)
		}
	}
}

// children are the processes that descend from this one.
func children(t *testing.T) []int {
	t.Helper()
	d, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	parents := map[int]int{}
	for _, e := range d {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if ppid, err := strconv.Atoi(f[1]); err == nil && f[0] != "Z" {
			parents[pid] = ppid
		}
	}
	var found []int
	for pid := range parents {
		for p := parents[pid]; p > 0; p = parents[p] {
			if p == os.Getpid() {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}

func TestCheck(t *testing.T) {
	ok := Triangle()
	tests := []struct {
		name   string
		change func(*Mesh)
		want   string
	}{
		{"no nodes", func(m *Mesh) { m.Nodes = nil }, "0 nodes"},
		{"a node twice", func(m *Mesh) { m.Nodes[1] = "node-a" }, `"node-a" is there twice`},
		{"a cable to nowhere", func(m *Mesh) { m.Nodes = m.Nodes[:2] }, `"node-c", which is no node`},
		{"an interface twice", func(m *Mesh) { m.Cables[0].Ends[0].Iface = "prev" }, `two interfaces "prev"`},
		{"a long name", func(m *Mesh) { m.Cables[0].Ends[0].Iface = "sixteen-letters-" }, "no name for one"},
		{"the management network's", func(m *Mesh) { m.Cables[0].Ends[0].Iface = ManagementIface }, `"mgmt"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := Mesh{slices.Clone(ok.Nodes), slices.Clone(ok.Cables)}
			tt.change(&m)
			if _, err := Run(t.Context(), Job{Mesh: m}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one about %s", err, tt.want)
			}
		})
	}
}
