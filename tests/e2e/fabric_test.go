package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/require"
)

// patience is a hang guard, not a measure.
const patience = 8 * time.Minute

// built is where TestMain puts what is under test. Only this package builds there, so that nobody replaces a library in use.
var (
	root  = moduleRoot()
	built = filepath.Join(root, "build/e2e")
)

// unable is why there is nothing to test; nil when there is.
var unable error

func TestMain(m *testing.M) {
	if name := os.Getenv("E2E_HELPER"); name != "" {
		if err := helpers[name](); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	unable = build()
	if unable == nil {
		unable = tryFabric()
	}
	os.Exit(m.Run())
}

// helpers are what this program does when it is started on a node.
var helpers = map[string]func() error{}

func moduleRoot() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../..")
}

// build makes the plugin, the driver and the fake library.
func build() error {
	for tool, pkg := range map[string]string{"make": "make", "gcc": "gcc", "ip": "iproute2", "/usr/include/infiniband/verbs.h": "libibverbs-dev"} {
		_, err := exec.LookPath(tool)
		if strings.HasPrefix(tool, "/") {
			_, err = os.Stat(tool)
		}
		if err != nil {
			return fmt.Errorf("%w: install %s", err, pkg)
		}
	}
	if err := os.MkdirAll(built, 0o755); err != nil {
		return err
	}
	lock, err := os.Create(filepath.Join(built, "lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"-C", root, "BUILD=build/e2e", "build", "netdriver", "fakeverbs"},
		{"-C", filepath.Join(root, "tests/fakeverbs"), "OUT=" + filepath.Join(built, "fakeverbs"), "old"},
	} {
		cmd := exec.Command("make", args...)
		cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "MAKE") || strings.HasPrefix(s, "MFLAGS") })
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v: %v\n%s", cmd, err, out)
			os.Exit(1) // what cannot be built is broken, not missing
		}
	}
	return nil
}

// tryFabric reports whether namespaces can be made here.
func tryFabric() error {
	out, err := tool("fakenet", "run", filepath.Join(root, "tests/fakeverbs/triangle.txt"), "true").CombinedOutput()
	if err != nil {
		return fmt.Errorf("a fabric cannot be made: %w: %s", err, out)
	}
	return nil
}

func tool(name string, args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(built, "fakeverbs", name), args...)
}

// fabric is a set of nodes with their cables. It lives as long as its test.
type fabric struct {
	t     *testing.T
	dir   string
	nodes []string
	jobs  int
}

const triangle = `
port a rdma0 netdev p0 addr 192.168.1.1/24 cage p0
port a rdma1 netdev p1 addr 192.168.3.1/24 cage p1
port b rdma0 netdev p0 addr 192.168.2.1/24 cage p0
port b rdma1 netdev p1 addr 192.168.1.2/24 cage p1
port c rdma0 netdev p0 addr 192.168.3.2/24 cage p0
port c rdma1 netdev p1 addr 192.168.2.2/24 cage p1
link a:rdma0 b:rdma1
link b:rdma0 c:rdma1
link c:rdma0 a:rdma1
`

// newFabric makes the nodes of a topology file.
func newFabric(t *testing.T, topology string) *fabric {
	t.Helper()
	if unable != nil {
		require.Skip(t, require.Netns, unable.Error())
	}
	base := "/dev/shm" // where memory is, as the fabric's state is memory
	if unix.Access(base, unix.W_OK) != nil {
		base = ""
	}
	dir, err := os.MkdirTemp(base, "e2e")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	f := &fabric{t: t, dir: dir}
	for line := range strings.Lines(topology) {
		if w := strings.Fields(line); len(w) > 1 && slices.Contains([]string{"port", "netif", "node"}, w[0]) && !slices.Contains(f.nodes, w[1]) {
			f.nodes = append(f.nodes, w[1])
		}
	}
	file := filepath.Join(dir, "topology.txt")
	if err := os.WriteFile(file, []byte(topology), 0o600); err != nil {
		t.Fatal(err)
	}
	up := tool("fakenet", "up", "-d", dir, file)
	var said strings.Builder
	up.Stderr = &said
	up.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := up.StdoutPipe()
	if err == nil {
		err = up.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(up.Process.Signal(syscall.SIGTERM), up.Wait()); err != nil {
			t.Errorf("fakenet up: %v: %s", err, &said)
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
		t.Fatalf("fakenet up: %q, %v, %s", line, err, &said)
	}
	return f
}

// command is one that will run on a node.
func (f *fabric) command(node string, name string, args ...string) *exec.Cmd {
	cmd := tool("fakenet", append([]string{"exec", "-d", f.dir, node, name}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = os.Environ()
	return cmd
}

// fault runs fakefault and returns what it says.
func (f *fabric) fault(args ...string) string {
	f.t.Helper()
	out, err := tool("fakefault", append([]string{"-d", f.dir}, args...)...).CombinedOutput()
	if err != nil {
		f.t.Fatalf("fakefault %v: %v: %s", args, err, out)
	}
	return string(out)
}

// queuePairs are the numbers of a node's live queue pairs, with their devices.
func (f *fabric) queuePairs(node string) (numbers []uint32, devices []string) {
	f.t.Helper()
	for line := range strings.Lines(f.fault("show")) {
		var n uint32
		var at string
		if _, err := fmt.Sscanf(line, "qp %v %s", &n, &at); err != nil {
			continue
		}
		if on, device, _ := strings.Cut(at, ":"); on == node {
			numbers = append(numbers, n)
			devices = append(devices, device)
		}
	}
	return numbers, devices
}
