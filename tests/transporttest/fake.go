package transporttest

import (
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/ibv"
	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
	"ncclmesh/transport"
)

// Topology has the node that the tests run on, with two ports of different speed
// that reach themselves, and another at the end of their cables.
const Topology = `
port a rdma0 netdev p0 addr 192.168.1.1/24 cage p0 speed 100G ece 15b3:10000005
port a rdma1 netdev p1 addr 192.168.2.1/24 cage p1 speed 50G msg 4096
port b rdma0 netdev p0 addr 192.168.1.2/24
port b rdma1 netdev p1 addr 192.168.2.2/24
link a:rdma0 b:rdma0
link a:rdma1 b:rdma1
mgmt none
`

// missing is why the tests of connections cannot run.
var missing string

// onFabric says that the tests of the package run on a fabric of tests/fakeverbs, and over the kernel's sockets.
var onFabric bool

// Main is what TestMain of a package does whose tests are not simulated: they start again as a process on a node of a small fabric.
func Main(m *testing.M) {
	onFabric = true
	if os.Getenv(fabric.Tested) == "" {
		if err := fabric.Again("transport", Topology, "a"); err != nil {
			missing = err.Error()
		}
	}
	os.Exit(m.Run())
}

// RequireFake skips a test where the fake library cannot be built.
func RequireFake(t *testing.T) {
	t.Helper()
	if missing != "" {
		require.Skip(t, require.Fake, "needs tests/fakeverbs: "+missing)
	}
}

// logWriter writes a transport's log into the test's.
type logWriter struct {
	t *testing.T
}

func (w logWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

var warm sync.Once

// Options are those of a transport: of a simulation, on a process of its own, on the machine after that of the one before; else over
// the fabric.
func Options(t *testing.T) transport.Options {
	o := transport.Options{
		Timeout: -1, RetryCount: -1, TrafficClass: -1, ServiceLevel: -1,
		Log: slog.New(slog.NewTextHandler(logWriter{t}, nil)),
	}
	if w := worldOf(t); w != nil {
		o.Machine = w.machine()
		return o
	}
	o.Sysfs = os.Getenv("NCCL_MESH_SYSFS")
	o.TimeScale = 5 // the machines that run tests are busy
	return o
}

// New makes a transport with [Options], which ends with the test.
func New(t *testing.T, change ...func(*transport.Options)) *transport.Transport {
	t.Helper()
	if worldOf(t) == nil {
		RequireFake(t)
	}
	return open(t, Options(t), change)
}

// open makes a transport that ends with the test.
func open(t *testing.T, o transport.Options, change []func(*transport.Options)) *transport.Transport {
	t.Helper()
	for _, f := range change {
		f(&o)
	}
	tr, err := transport.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if w := worldOf(t); w != nil {
		w.transports[tr] = w.processes[len(w.processes)-1]
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil && (worldOf(t) == nil || !worldOf(t).killed[tr]) {
			t.Errorf("close: %v", err)
		}
	})
	return tr
}

// Leaks fails the test when it leaves verbs objects, descriptors or goroutines
// behind. Call it before anything else registers a cleanup.
func Leaks(t *testing.T) {
	t.Helper()
	if onFabric {
		RequireFake(t)
	}
	fds := func() []string {
		d, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		var open []string
		for _, e := range d {
			if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to != "anon_inode:[pidfd]" { // nor the fake library's hold on a process
				open = append(open, e.Name()+" "+to)
			}
		}
		return open
	}
	warm.Do(func() { // what the library keeps for the process is no leak
		if !onFabric {
			return
		}
		if _, err := ibv.Load(); err != nil {
			t.Fatal(err)
		}
		tr, err := transport.New(Options(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	})
	goroutines, files, live := runtime.NumGoroutine(), fds(), ibv.Live()
	t.Cleanup(func() {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			g, f, l := runtime.NumGoroutine(), fds(), ibv.Live()
			diff := cmp.Diff(live, l)
			if g <= goroutines && len(f) <= len(files) && diff == "" {
				return
			}
			runtime.GC() // pipes that the standard library keeps for splicing go with it
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<16)
				t.Errorf("left behind: %d goroutines (%d before), descriptors %q (%q before), verbs objects (-before +after):\n%s\n%s",
					g, goroutines, f, files, diff, buf[:runtime.Stack(buf, true)])
				return
			}
		}
	})
}
