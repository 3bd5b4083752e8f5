package fabric

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Fabric is a mesh that is up.
type Fabric struct {
	Nodes []string // in the order of the topology
	Dir   string   // of its state
	Tools string   // directory of the launcher and its companions

	held *exec.Cmd
	said strings.Builder // by the process that holds it
}

// Tools is where a Build put the launcher and its companions.
func Tools(build string) string { return filepath.Join(build, "fakeverbs") }

// Up brings up what a topology describes, with the tools in the given directory.
// The error is ErrUnable where namespaces cannot be made.
func Up(tools, topology string) (_ *Fabric, err error) {
	base := "/dev/shm" // where memory is, as the fabric's state is memory
	if unix.Access(base, unix.W_OK) != nil {
		base = ""
	}
	f := &Fabric{Tools: tools}
	if f.Dir, err = os.MkdirTemp(base, "fabric"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	for line := range strings.Lines(topology) {
		if w := strings.Fields(line); len(w) > 1 && slices.Contains([]string{"port", "netif", "node"}, w[0]) && !slices.Contains(f.Nodes, w[1]) {
			f.Nodes = append(f.Nodes, w[1])
		}
	}
	file := filepath.Join(f.Dir, "topology.txt")
	if err := os.WriteFile(file, []byte(topology), 0o600); err != nil {
		return nil, err
	}
	// It is to die with the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	up := f.tool("fakenet", "up", "-d", f.Dir, file)
	up.Stderr = &f.said
	up.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := up.StdoutPipe()
	if err == nil {
		err = up.Start()
	}
	if err != nil {
		return nil, err
	}
	f.held = up
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
		return nil, fmt.Errorf("%w: fakenet up: %q, %w", ErrUnable, line, err)
	}
	return f, nil
}

func (f *Fabric) tool(name string, args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(f.Tools, name), args...)
}

// Command is one that will run on a node. It ends with its caller.
func (f *Fabric) Command(ctx context.Context, node, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(f.Tools, "fakenet"), append([]string{"exec", "-d", f.Dir, node, program}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = os.Environ()
	cmd.WaitDelay = time.Second // children that it leaves behind hold its output open
	return cmd
}

// Fault runs fakefault and returns what it says.
func (f *Fabric) Fault(args ...string) (string, error) {
	cmd := f.tool("fakefault", append([]string{"-d", f.Dir}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("fakefault %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

// Close takes the fabric down.
func (f *Fabric) Close() error {
	var err error
	if f.held != nil {
		_ = f.held.Process.Signal(syscall.SIGTERM) // a terminal's interrupt has reached it too
		if err = f.held.Wait(); err != nil {
			err = fmt.Errorf("fakenet up: %w: %s", err, &f.said)
		}
		f.held = nil
	}
	return errors.Join(err, os.RemoveAll(f.Dir))
}
