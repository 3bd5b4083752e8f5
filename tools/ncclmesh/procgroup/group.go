package procgroup

import (
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Group is a program that was started, and the processes that it has started in turn. Its methods may be called from any
// goroutine, Wait once.
type Group struct {
	cmd *exec.Cmd

	mu   sync.Mutex
	over bool // the leader is reaped, or is about to be: the number may be another group's
}

// Start starts a command as the leader of a new group.
func Start(cmd *exec.Cmd) (*Group, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Group{cmd: cmd}, nil
}

// Signal sends a signal to all processes of the group. It does nothing once Wait has ended the group.
func (g *Group) Signal(s syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.over {
		_ = syscall.Kill(-g.cmd.Process.Pid, s) // the leader is there at least, if only unreaped
	}
}

// Wait waits until the leader has ended, and calls linger, if it is not nil, during which the group may still be signalled.
// Then it kills what is left of the group, and returns what [exec.Cmd.Wait] does.
func (g *Group) Wait(linger func()) error {
	awaitExit(g.cmd.Process.Pid)
	if linger != nil {
		linger()
	}
	g.Signal(syscall.SIGKILL)
	g.mu.Lock()
	g.over = true
	g.mu.Unlock()
	return g.cmd.Wait()
}

// awaitExit waits until a child has ended, and does not reap it.
func awaitExit(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}
