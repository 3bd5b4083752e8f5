package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"ncclmesh/tests/require"
	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/tools/ncclmesh/jobenv"
)

const reuseVariable = "LAUNCH_TEST_REUSE"

// A signal that is passed on after one of two processes has ended does not reach the group that has got its number since.
func TestReusedNumber(t *testing.T) {
	require.Tools(t, require.Netns, "sh", "sleep", "mount")
	if os.Geteuid() != 0 {
		require.Skip(t, require.Netns, "only root chooses numbers of processes")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// In a name space of its own numbers are given one after another, from the one that was written there.
	cmd := exec.Command("sh", "-c", `mount -t proc proc /proc && "$0" -test.run='^TestHelperReuse$' -test.v -test.timeout 20s`, self)
	cmd.Env = append(os.Environ(), reuseVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "the other group lives") {
		t.Errorf("the helper has not said how it ended:\n%s", out)
	}
}

// TestHelperReuse is what TestReusedNumber runs in a name space.
func TestHelperReuse(t *testing.T) {
	if os.Getenv(reuseVariable) == "" {
		t.Skip("runs within another test")
	}
	for !reuses(t) { // a thread of this program may take the number first
	}
	fmt.Println("the other group lives")
}

// reuses runs two processes, gives the number of the first, when it has ended, to another group, and has both signalled. It
// reports whether the other group got the number.
func reuses(t *testing.T) bool {
	a := askAgent(t, Order{Command: []string{"sh", "-c", `echo $$; test $RANK = 1 || exit 0; trap "exit 9" USR1; sleep 600 & echo up; wait`}, Processes: 2, Setting: Setting{NoPlugin: true}})
	a.say(t, Word{Start: &Start{Env: [][]string{{"RANK=0"}, {"RANK=1"}}}})
	ended, up, number := false, false, 0
	for !ended || !up {
		r := a.hear(t)
		switch {
		case r.Exit != nil:
			ended = r.Exit.Process == 0
		case r.Line != nil && string(r.Line.Text) == "up":
			up = true
		case r.Line != nil && r.Line.Process == 0:
			number, _ = strconv.Atoi(string(r.Line.Text))
		}
	}
	if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(number-1)), 0); err != nil {
		t.Fatal(err)
	}
	other := exec.Command("sleep", "600")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	a.say(t, Word{Signal: int(syscall.SIGUSR1)})
	for r := a.hear(t); r.Exit == nil; r = a.hear(t) {
	}
	a.close()
	_ = other.Process.Signal(syscall.SIGTERM) // which comes after the other, where that has come
	_ = other.Wait()
	if other.Process.Pid != number {
		return false
	}
	if s := other.ProcessState.Sys().(syscall.WaitStatus).Signal(); s != syscall.SIGTERM {
		t.Errorf("process %d, which is none of the job's, was ended by %v", number, s)
	}
	return true
}

// agent is one that runs in this process.
type agent struct {
	say  func(*testing.T, Word)
	hear func(*testing.T) Report
	// close ends the agent.
	close func()
}

// askAgent starts an agent and asks it for what an order says, until it is ready.
func askAgent(t *testing.T, o Order) agent {
	t.Helper()
	in, toAgent, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromAgent, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	n := Node{Environ: os.Environ(), Look: func() (jobenv.Node, error) { return jobenv.Node{}, nil }, Address: func(func(string) string) (string, error) { return "", nil }}
	served := make(chan error, 1)
	go func() {
		served <- fleet.Serve(context.Background(), in, out, fleet.Handlers{Do: n.Serve})
		_ = out.Close()
	}()
	write := json.NewEncoder(toAgent)
	read := json.NewDecoder(fromAgent)
	a := agent{
		say: func(t *testing.T, w Word) {
			t.Helper()
			if err := write.Encode(map[string]Word{"say": w}); err != nil {
				t.Fatal(err)
			}
		},
		hear: func(t *testing.T) Report {
			t.Helper()
			for {
				var m struct{ Answer *Report }
				if err := read.Decode(&m); err != nil {
					t.Fatal(err)
				}
				if m.Answer != nil {
					return *m.Answer
				}
			}
		},
		close: func() {
			_ = toAgent.Close()
			_, _ = io.Copy(io.Discard, fromAgent)
			<-served
			_, _ = in.Close(), fromAgent.Close()
		},
	}
	if err := write.Encode(map[string]any{"do": Do, "with": o}); err != nil {
		t.Fatal(err)
	}
	if r := a.hear(t); r.Ready == nil {
		t.Fatalf("%+v, want that it is ready", r)
	}
	return a
}
