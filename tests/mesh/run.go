package mesh

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Job is what runs on the nodes of a mesh, one process on each.
type Job struct {
	Mesh    Mesh
	Command func(node string) []string // program and arguments
	Env     []string                   // NAME=VALUE, beside what this process has
	Line    func(node, line string)    // is given what the processes print, one call at a time; nil is for nobody
}

// A Result is how the process of a node ended.
type Result struct {
	Node   string
	Status int // of the process; 128 and the signal when one killed it
}

// ErrUnable marks a machine on which no mesh can be made.
var ErrUnable = errors.New("this machine makes no network namespaces")

// The processes of a mesh find their role in the environment, and the rest on
// standard input.
const (
	roleVariable = "NCCLMESH_TEST_ROLE"
	roleHub      = "hub"
	roleNode     = "node"
)

// plan is what the hub is told.
type plan struct {
	Mesh     Mesh
	Commands map[string][]string
}

// Main plays the role of this process in a mesh, if it has one; then it does not
// return.
func Main() {
	role := os.Getenv(roleVariable)
	if role == "" {
		return
	}
	var err error
	switch role {
	case roleHub:
		err = hub()
	case roleNode:
		err = node()
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "mesh: %s: %v\n", role, err)
		os.Exit(statusUnmade)
	}
	os.Exit(0)
}

// statusUnmade is the hub's when there is no mesh.
const statusUnmade = 100

// Run makes the mesh, runs the job on it and takes everything down. The error is
// about the mesh; what became of the processes is in the results.
func Run(ctx context.Context, j Job) ([]Result, error) {
	if err := j.Mesh.check(); err != nil {
		return nil, err
	}
	p := plan{Mesh: j.Mesh, Commands: map[string][]string{}}
	for _, n := range j.Mesh.Nodes {
		p.Commands[n] = j.Command(n)
	}
	in, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	// The hub is to die with the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(append(os.Environ(), j.Env...), roleVariable+"="+roleHub)
	cmd.Stdin = bytes.NewReader(in)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true, // an interrupt is the caller's to handle
	}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w; run it as root, or allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns)", ErrUnable, err)
	}
	results, rerr := j.follow(bufio.NewReader(out))
	err = cmd.Wait()
	exit := new(exec.ExitError)
	switch {
	case ctx.Err() != nil:
		return results, context.Cause(ctx)
	case errors.As(err, &exit) && exit.ExitCode() == statusUnmade:
		return results, fmt.Errorf("%w: %s", ErrUnable, strings.TrimSpace(complaints.String()))
	case err != nil:
		return results, fmt.Errorf("the process that holds the mesh: %w: %s", err, strings.TrimSpace(complaints.String()))
	case rerr != nil:
		return results, rerr
	case len(results) != len(j.Mesh.Nodes):
		return results, fmt.Errorf("%d of %d processes have ended", len(results), len(j.Mesh.Nodes))
	}
	return results, nil
}

// What the hub writes: a letter, a node, a tab, the rest, a line each.
const (
	noteLine = 'l' // a line that the process printed
	noteEnd  = 'e' // its status
)

// follow reads what the hub writes until it ends.
func (j *Job) follow(in *bufio.Reader) (results []Result, err error) {
	for {
		line, rerr := in.ReadString('\n')
		if line == "" || rerr != nil {
			return results, err // the end; how it came is cmd.Wait's to say
		}
		node, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n")[1:], "\t")
		switch {
		case ok && line[0] == noteLine:
			if j.Line != nil {
				j.Line(node, rest)
			}
		case ok && line[0] == noteEnd:
			status, serr := strconv.Atoi(rest)
			err = errors.Join(err, serr)
			results = append(results, Result{node, status})
		default:
			err = errors.Join(err, fmt.Errorf("the process that holds the mesh says %q", line))
		}
	}
}
