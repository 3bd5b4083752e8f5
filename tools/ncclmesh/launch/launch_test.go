package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/tools/ncclmesh/jobenv"
)

// TestMain is an agent too: hosts of these tests are this program.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "agent" {
		n := Node{
			Environ: os.Environ(), Look: func() (jobenv.Node, error) { return jobenv.Node{Interfaces: []string{"lo"}}, nil },
			Address: func(getenv func(string) string) (string, error) { return getenv("AT"), nil },
		}
		if err := fleet.Serve(context.Background(), os.Stdin, os.Stdout, fleet.Handlers{Do: n.Serve}); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// hosts are what the shell makes of the names of hosts: $0 is one, $1 and $2 are ncclmesh agent.
const hosts = `
case $0 in
bootstrap) unset SSH_CONNECTION; HOST=$0 exec "$SELF" "$2" ;;
nowhere) unset SSH_CONNECTION AT; HOST=$0 exec "$SELF" "$2" ;;
refused) echo "ssh: connect to host refused port 22: Connection refused" >&2; exit 255 ;;
*) SSH_CONNECTION="10.0.0.9 1 10.0.0.1 22" HOST=$0 exec "$SELF" "$2" ;;
esac
`

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		panic(err)
	}
	return name
}

func testFleet(t *testing.T) *fleet.Fleet {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "NCCL_") })
	return &fleet.Fleet{SSH: []string{"sh", "-c", hosts}, Here: self, Env: append(env, "SELF="+self, "AT=10.1.0.1", "SSH_CONNECTION=10.0.0.9 1 10.0.0.8 22", "GORACE=atexit_sleep_ms=0"), Hello: 2 * time.Minute}
}

// output is written by several goroutines, and watched.
type output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	seen chan struct{} // closed when what is looked for was written
	want string
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.Write(p)
	if o.seen != nil && strings.Contains(o.b.String(), o.want) {
		close(o.seen)
		o.seen = nil
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// sortedLines are what was written, without the order between hosts.
func (o *output) sortedLines() []string {
	lines := strings.Split(strings.TrimSuffix(o.String(), "\n"), "\n")
	slices.Sort(lines)
	return lines
}

func TestRun(t *testing.T) {
	t.Parallel()
	const variables = `echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $NNODES $MASTER_ADDR $MASTER_PORT $HOST $MORE`
	tests := []struct {
		name   string
		job    Job
		stdout []string
		stderr string // in it
		status int
		err    string
	}{
		{"two hosts", Job{Order: Order{Command: []string{"sh", "-c", variables}, Processes: 1, Setting: Setting{Env: []string{"MORE=x y"}}}, Hosts: []string{"a", "b"}, MasterPort: 29500},
			[]string{"a: 0 2 0 1 0 2 10.0.0.1 29500 a x y", "b: 1 2 0 1 1 2 10.0.0.1 29500 b x y"}, "", 0, ""},
		{"two processes each", Job{Order: Order{Command: []string{"sh", "-c", variables}, Processes: 2}, Hosts: []string{"a", "b"}, MasterPort: 1, MasterAddress: "head"},
			[]string{"a:0: 0 4 0 2 0 2 head 1 a", "a:1: 1 4 1 2 0 2 head 1 a", "b:0: 2 4 0 2 1 2 head 1 b", "b:1: 3 4 1 2 1 2 head 1 b"}, "", 0, ""},
		{"the first host is not reached over ssh", Job{Order: Order{Command: []string{"sh", "-c", variables}, Processes: 1}, Hosts: []string{"bootstrap", "b"}, MasterPort: 29500},
			[]string{"b: 1 2 0 1 1 2 10.1.0.1 29500 b", "bootstrap: 0 2 0 1 0 2 10.1.0.1 29500 bootstrap"}, "", 0, ""},
		{"the first host is this one, to which the user has logged in over ssh", Job{Order: Order{Command: []string{"sh", "-c", variables}, Processes: 1}, Hosts: []string{fleet.Here, "b"}, MasterPort: 29500},
			[]string{"b: 1 2 0 1 1 2 10.1.0.1 29500 b", "here: 0 2 0 1 0 2 10.1.0.1 29500"}, "", 0, ""},
		{"nor has it an address", Job{Order: Order{Command: []string{"sh", "-c", variables}, Processes: 1}, Hosts: []string{"nowhere"}, MasterPort: 29500},
			[]string{"nowhere: 0 1 0 1 0 1 " + hostname() + " 29500 nowhere"}, "", 0, ""},
		{"no end of line, and no text", Job{Order: Order{Command: []string{"printf", `\377x\n\nlast`}, Processes: 1}, Hosts: []string{"a"}},
			[]string{"a: ", "a: last", "a: \xffx"}, "", 0, ""},
		{"a directory, and standard error", Job{Order: Order{Command: []string{"sh", "-c", "pwd; echo wrong >&2"}, Processes: 1, Directory: "/usr"}, Hosts: []string{"a"}},
			[]string{"a: /usr"}, "a: wrong\n", 0, ""},
		{"a failure ends the others", Job{Order: Order{Command: []string{"sh", "-c", `test $RANK = 1 && exit 7; exec sleep 600`}, Processes: 1}, Hosts: []string{"a", "b", "c"}, Grace: time.Minute},
			[]string{""}, "", 7, "b ended with status 7"},
		{"also those that do not want to", Job{Order: Order{Command: []string{"sh", "-c", `test $RANK = 1 && exit 7; trap "" TERM; while :; do sleep 1; done`}, Processes: 2}, Hosts: []string{"a"}},
			[]string{""}, "", 7, "a:1 ended with status 7"},
		{"ended by a signal", Job{Order: Order{Command: []string{"sh", "-c", "kill -KILL $$"}, Processes: 1}, Hosts: []string{"a"}}, []string{""}, "", 137, "a was ended by killed"},
		{"no such command", Job{Order: Order{Command: []string{"no-such-command"}, Processes: 1}, Hosts: []string{"a"}}, []string{""}, "", 0, "a: start no-such-command: it is not in PATH there: install it, or give its full path"},
		{"a host that cannot be reached", Job{Order: Order{Command: []string{"echo", "started"}, Processes: 1}, Hosts: []string{"a", "refused", "b"}}, []string{""}, "", 0, "refused: cannot be reached"},
		{"no plugin", Job{Order: Order{Command: []string{"echo", "started"}, Processes: 1, Setting: Setting{Library: "/no/such.so"}}, Hosts: []string{"a"}}, []string{""}, "", 0, "a: /no/such.so does not exist"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j := tt.job
			j.NoPlugin = j.Library == ""
			var stdout, stderr output
			j.Stdout, j.Stderr = &stdout, &stderr
			err := j.Run(t.Context(), testFleet(t))
			if (tt.err != "") != (err != nil) || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			ended := new(StatusError)
			if errors.As(err, &ended) != (tt.status != 0) || ended.Status != tt.status {
				t.Errorf("status %d, want %d", ended.Status, tt.status)
			}
			if diff := cmp.Diff(tt.stdout, stdout.sortedLines()); diff != "" {
				t.Errorf("standard output (-want +got):\n%s", diff)
			}
			if !strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("standard error %q, want %q", &stderr, tt.stderr)
			}
		})
	}
}

// A signal reaches the processes, and those that their shell has started; nothing of a job outlives it.
func TestSignals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		script  string
		signals []os.Signal
		said    string
		status  int
	}{
		{"passed on", `trap 'echo told; exit 3' USR1; echo up $$; while :; do sleep 0.05; done`, []os.Signal{syscall.SIGUSR1}, "told", 3},
		{"the second kills", `trap '' INT TERM; echo up $$; while :; do sleep 0.05; done`, []os.Signal{syscall.SIGINT, syscall.SIGINT}, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			signals := make(chan os.Signal)
			seen := make(chan struct{})
			stdout := output{seen: seen, want: "up "}
			j := Job{Order: Order{Command: []string{"sh", "-c", tt.script}, Processes: 1, Setting: Setting{NoPlugin: true}}, Hosts: []string{"a"},
				Stdout: &stdout, Stderr: io.Discard, Signals: signals, Grace: time.Minute}
			ended := make(chan error, 1)
			go func() { ended <- j.Run(t.Context(), testFleet(t)) }()
			<-seen
			for _, s := range tt.signals {
				signals <- s
			}
			err := <-ended
			status := new(StatusError)
			if errors.As(err, &status); err == nil || status.Status != tt.status {
				t.Errorf("%v, want status %d", err, tt.status)
			}
			if !strings.Contains(stdout.String(), tt.said) {
				t.Errorf("it said %q, and not %q", &stdout, tt.said)
			}
			_, text, _ := strings.Cut(stdout.String(), "up ")
			pid, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(text, "\n", 2)[0]))
			if err != nil {
				t.Fatal(err)
			}
			if !gone(pid) {
				t.Errorf("process %d is left behind", pid)
			}
		})
	}
}

// gone waits until a process is.
func gone(pid int) bool {
	for range 600 {
		if text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat")); err != nil || bytes.Contains(text, []byte(") Z ")) {
			return true
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}

func TestVariables(t *testing.T) {
	j := &Job{Order: Order{Processes: 1}}
	h := &host{Job: j, ready: &Ready{Address: "here", Port: 7, Env: []string{"NCCL_NET=mesh", "NCCL_NET=IB"}}}
	env := h.variables([]*host{h})[0]
	if last := env[len(env)-1]; last != "NCCL_NET=IB" || !slices.Contains(env, "NCCL_NET=mesh") || !slices.Contains(env, "MASTER_PORT=7") {
		t.Errorf("%v: what the host says is not the last word", env)
	}
}

// plugin builds a file that passes for the plugin.
func plugin(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module ncclmesh\n", "capi/main.go": "package main\n\nfunc main() {}\n"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", "plugin.so", "./capi")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "plugin.so")
}

// A job does not start where NCCL would not use the plugin, whether the host or the command line says so, unless it is told to.
func TestBlocked(t *testing.T) {
	library := plugin(t)
	tests := []struct {
		name    string
		environ []string
		setting Setting
		blocked string // in the error
		against string
		last    string // variable
	}{
		{"nothing is in the way", []string{"NCCL_NET=IB"}, Setting{}, "", "", "NCCL_NET_PLUGIN_REF_COUNT=1"},
		{"the host", []string{"NCCL_MESH_TRANSPORT=ether"}, Setting{}, "NCCL_MESH_TRANSPORT=ether blocks: ", "", ""},
		{"what the command line says holds", []string{"NCCL_MESH_TRANSPORT=ether"}, Setting{Env: []string{"NCCL_MESH_TRANSPORT=tcp"}}, "", "", "NCCL_MESH_TRANSPORT=tcp"},
		{"the command line", nil, Setting{Env: []string{"NCCL_NET=IB"}}, "NCCL_NET=IB blocks: ", "", ""},
		{"anyway", nil, Setting{Env: []string{"NCCL_NET=IB"}, Anyway: true}, "", "NCCL_NET=IB blocks: ", "NCCL_NET=IB"},
		{"without the plugin", nil, Setting{Env: []string{"NCCL_NET=IB"}, NoPlugin: true}, "", "", "NCCL_NET=IB"},
		{"hindered", nil, Setting{Env: []string{"NCCL_ALGO=Ring"}}, "", "NCCL_ALGO=Ring hinders: ", "NCCL_ALGO=Ring"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := Node{Environ: tt.environ, Look: func() (jobenv.Node, error) { return jobenv.Node{Identify: func(string) error { return nil }}, nil }}
			tt.setting.Library = library
			env, against, err := n.Variables(tt.setting)
			if errors.Is(err, ErrBlocked) != (tt.blocked != "") || err != nil && !strings.Contains(err.Error(), tt.blocked) {
				t.Fatalf("error %v, want %q", err, tt.blocked)
			}
			if text := strings.Join(against, "\n"); !strings.Contains(text, tt.against) || (text == "") != (tt.against == "") {
				t.Errorf("against it: %q, want %q", text, tt.against)
			}
			if len(env) > 0 && env[len(env)-1] != tt.last || len(env) == 0 && tt.last != "" {
				t.Errorf("%v, want the last to be %s", env, tt.last)
			}
		})
	}
}

func TestCheckAddress(t *testing.T) {
	for s, fine := range map[string]bool{"node-a": true, "10.0.0.1": true, "fd00::1": true, "": false, "a b": false, "a:29500": false, "[fd00::1]:1": false, "tcp://a": false} {
		if err := CheckAddress(s); (err == nil) != fine {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func ExampleStatusError() {
	fmt.Println(&StatusError{"node-a:1", 143})
	// Output: node-a:1 was ended by terminated
}
