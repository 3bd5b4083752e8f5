package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/tools/ncclmesh/jobenv"
	"ncclmesh/tools/ncclmesh/library"
	"ncclmesh/tools/ncclmesh/procgroup"
)

// maxLine is where a line that does not end is cut.
const maxLine = 64 << 10

// grace is how long processes have between the signal that asks them to end and the one that ends them, when nobody is there
// to tell them more.
const grace = 1500 * time.Millisecond

// Node is what an agent has of the node that it is on.
type Node struct {
	Environ []string
	Look    func() (jobenv.Node, error)
	Address func(getenv func(string) string) (string, error) // where other nodes reach this one, by the variables of a job; "": nowhere
}

// Serve is the agent's handler.
func (n Node) Serve(ctx context.Context, q *fleet.Question) error {
	var o Order
	if err := q.With(&o); err != nil {
		return err
	}
	if len(o.Command) == 0 || o.Processes < 1 {
		return errors.New("there is no command to run")
	}
	ready, err := n.ready(o)
	if err != nil {
		return err
	}
	if err := q.Answer(Report{Ready: ready}); err != nil {
		return err
	}
	var w Word
	if err := q.Hear(&w); err != nil {
		return err
	}
	if w.Start == nil || len(w.Start.Env) != o.Processes {
		return fmt.Errorf("asked to start %d processes, with the variables of %d", o.Processes, len(w.Start.env()))
	}
	j := &job{q: q}
	for i := range o.Processes {
		if err := j.start(o, i, append(n.Environ, w.Start.Env[i]...)); err != nil {
			j.signal(syscall.SIGKILL)
			j.wait()
			return err
		}
	}
	return j.run(ctx)
}

func (s *Start) env() [][]string {
	if s == nil {
		return nil
	}
	return s.Env
}

// ready looks for what the processes need.
func (n Node) ready(o Order) (*Ready, error) {
	r := &Ready{}
	var err error
	if r.Env, r.Against, err = n.Variables(o.Setting); err != nil {
		return nil, err
	}
	if r.Port, err = freePort(); err != nil {
		return nil, err
	}
	all, _ := jobenv.Read(n.Environ, "/") // the error is among the objections
	if r.Address, err = n.address(o, all.Getenv); err != nil {
		return nil, err
	}
	return r, nil
}

// ErrBlocked marks hosts on which NCCL would not use the plugin.
var ErrBlocked = errors.New("NCCL would not use the plugin there")

// Variables returns the variables that a process on this node has over those of the environment, and what in both works against
// the plugin. It is an [ErrBlocked] where NCCL would not use the plugin, unless the setting is to start anyway.
func (n Node) Variables(s Setting) (env, against []string, err error) {
	given, _ := jobenv.Read(append(slices.Clip(n.Environ), s.Env...), "/")
	var blocks []string
	if !s.NoPlugin {
		found := library.Find(given.Getenv)
		if s.Library != "" {
			l, err := library.Named(s.Library)
			if err != nil {
				return nil, nil, err
			}
			found = []library.Library{l}
		}
		exports, err := jobenv.Exports(found)
		if err != nil {
			return nil, nil, err
		}
		for _, v := range exports {
			env = append(env, v.Name+"="+v.Value)
		}
	}
	env = append(env, s.Env...)
	all, err := jobenv.Read(append(slices.Clip(n.Environ), env...), "/")
	if err != nil {
		against = append(against, err.Error())
	}
	if s.NoPlugin {
		return env, against, nil
	}
	node, err := n.Look()
	if err != nil {
		return nil, nil, err
	}
	for _, o := range jobenv.Against(all, node) {
		switch {
		case o.Severity == jobenv.Blocks && !s.Anyway:
			blocks = append(blocks, o.String())
		case o.Severity != jobenv.Idle:
			against = append(against, o.String())
		}
	}
	if blocks != nil {
		return nil, nil, fmt.Errorf("%w: %s; --anyway starts all the same", ErrBlocked, strings.Join(blocks, "; "))
	}
	return env, against, nil
}

// address returns where the other nodes reach this one. Its name is the last resort, because many machines have it for a
// loopback address in /etc/hosts.
func (n Node) address(o Order, getenv func(string) string) (string, error) {
	// "client port server port" says where ssh reached this node; without ssh it says where the user's login did.
	if f := strings.Fields(getenv("SSH_CONNECTION")); len(f) == 4 && !o.Local {
		return f[2], nil
	}
	at, err := n.Address(getenv)
	if err != nil || at != "" {
		return at, err
	}
	return os.Hostname()
}

// freePort is one that nobody has now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return 0, fmt.Errorf("look for a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// job are the processes of one host.
type job struct {
	q      *fleet.Question
	groups []*procgroup.Group
	ended  sync.WaitGroup
}

// start starts process i. Its group is signalled, and ends, as a whole.
func (j *job) start(o Order, i int, env []string) error {
	cmd := exec.Command(o.Command[0], o.Command[1:]...)
	cmd.Dir, cmd.Env = o.Directory, env
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	group, err := procgroup.Start(cmd)
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("start %s: it is not in PATH there: install it, or give its full path", o.Command[0])
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", o.Command[0], err)
	}
	j.groups = append(j.groups, group)
	written := make(chan struct{})
	go func() {
		defer close(written)
		var both sync.WaitGroup
		both.Go(func() { j.lines(stdout, i, false) })
		both.Go(func() { j.lines(stderr, i, true) })
		both.Wait()
	}()
	j.ended.Go(func() {
		_ = group.Wait(func() { // ProcessState says it
			select {
			case <-written: // also by the children that it has left behind
			case <-time.After(grace):
			}
		})
		<-written
		_ = j.q.Answer(Report{Exit: &Exit{i, status(cmd.ProcessState)}})
	})
	return nil
}

func status(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// lines hands on what a process writes.
func (j *job) lines(from io.Reader, process int, isError bool) {
	r := bufio.NewReaderSize(from, maxLine)
	for {
		text, err := r.ReadSlice('\n')
		if len(text) > 0 {
			if text[len(text)-1] == '\n' {
				text = text[:len(text)-1]
			}
			_ = j.q.Answer(Report{Line: &Line{process, isError, text}}) // the context ends when nobody is there
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// run returns when all processes have ended. They are made to when the asker has gone.
func (j *job) run(ctx context.Context) error {
	over := make(chan struct{})
	go func() { j.wait(); close(over) }()
	words := make(chan Word)
	go func() {
		for {
			var w Word
			if j.q.Hear(&w) != nil {
				return
			}
			select {
			case words <- w:
			case <-ctx.Done(): // which it is when nobody waits for words any more
				return
			}
		}
	}()
	alive := time.NewTicker(beat)
	defer alive.Stop()
	for {
		select {
		case <-over:
			return nil
		case w := <-words:
			j.signal(syscall.Signal(w.Signal))
		case <-alive.C:
			_ = j.q.Answer(Report{})
		case <-ctx.Done():
			j.signal(syscall.SIGTERM)
			select {
			case <-over:
			case <-time.After(grace):
				j.signal(syscall.SIGKILL)
				<-over
			}
			return ctx.Err()
		}
	}
}

func (j *job) wait() { j.ended.Wait() }

// signal signals the groups of all processes that have not ended.
func (j *job) signal(s syscall.Signal) {
	for _, group := range j.groups {
		group.Signal(s)
	}
}
