package procgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// While Wait lingers, the leader has ended and keeps the group's number, and the group can be signalled. Afterwards nothing
// of the group is left.
func TestWait(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("sh", "-c", `(trap 'echo heard' USR1; echo up; sleep 600 & wait; sleep 600) & exit 3`)
	cmd.Stdout = w // of the children too, to whose end it is open
	g, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	err = g.Wait(func() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		if err != nil || !bytes.Contains(stat, []byte(") Z ")) {
			t.Errorf("the leader is %q, %v; want a process that has ended and is not reaped", stat, err)
		}
		expect(t, r, "up\n")
		g.Signal(syscall.SIGUSR1)
		expect(t, r, "heard\n")
	})
	exited := (*exec.ExitError)(nil)
	if !errors.As(err, &exited) || exited.ExitCode() != 3 {
		t.Errorf("%v, want status 3", err)
	}
	if rest, err := io.ReadAll(r); len(rest) > 0 || err != nil { // it ends when the last process has
		t.Errorf("then %q, %v", rest, err)
	}
	g.Signal(syscall.SIGKILL)
}

func expect(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Errorf("read %q, %v; want %q", got, err, want)
	}
}

func TestStartFails(t *testing.T) {
	if g, err := Start(exec.Command("/no/such/program")); g != nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, %v", g, err)
	}
}
