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
	environ := jobenv.Variables{}
	all, err := jobenv.Read(n.Environ, "/")
	r := &Ready{}
	if err != nil {
		r.Against = append(r.Against, err.Error())
	}
	if !o.NoPlugin {
		found := library.Find(all.Getenv)
		if o.Library != "" {
			l, err := library.Named(o.Library)
			if err != nil {
				return nil, err
			}
			found = []library.Library{l}
		}
		if environ, err = jobenv.Exports(found); err != nil {
			return nil, err
		}
		node, err := n.Look()
		if err != nil {
			return nil, err
		}
		for _, objection := range jobenv.Against(environ.Over(all), node) {
			if objection.Severity != jobenv.Idle {
				r.Against = append(r.Against, objection.String())
			}
		}
	}
	for _, v := range environ {
		r.Env = append(r.Env, v.Name+"="+v.Value)
	}
	if r.Port, err = freePort(); err != nil {
		return nil, err
	}
	if r.Address, err = n.address(o, all.Getenv); err != nil {
		return nil, err
	}
	return r, nil
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
