package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"ncclmesh/tools/ncclmesh/fleet"
)

// A Job is what is to run, and where.
type Job struct {
	Order
	Hosts         []string
	MasterAddress string // none: that at which the first host is reached, by ssh or over the network of the bootstrap
	MasterPort    int    // 0: one that is free there
	Stdout        io.Writer
	Stderr        io.Writer
	Signals       <-chan os.Signal // what the processes are signalled
	Ready         func()           // is called when all hosts are ready; nil: nothing is
	Grace         time.Duration    // how long the others have after the first failure
}

// A StatusError is the end of the process that failed first.
type StatusError struct {
	Who    string
	Status int // as a shell has it
}

func (e *StatusError) Error() string {
	if e.Status > 128 {
		return fmt.Sprintf("%s was ended by %v", e.Who, syscall.Signal(e.Status-128))
	}
	return fmt.Sprintf("%s ended with status %d", e.Who, e.Status)
}

// host is the job's end of one host.
type host struct {
	*Job
	index int
	call  *fleet.Call
	ready *Ready
}

// Run runs a job, and returns when nothing of it runs any more. The error is that of the host or process that failed first, a
// [StatusError] if it is a process's. The other processes are asked to end then, and end when the grace is over.
func (j *Job) Run(ctx context.Context, f *fleet.Fleet) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hosts := make([]*host, len(j.Hosts))
	for i, name := range j.Hosts {
		hosts[i] = &host{Job: j, index: i}
		order := j.Order
		order.Local = name == fleet.Here
		hosts[i].call = f.Start(ctx, name, fleet.Request{Do: Do, With: order, Silence: silence, Limit: math.MaxInt})
		defer hosts[i].call.Close()
	}
	if err := fleet.Each(hosts, func(_ int, h *host) error { return h.prepare() }); err != nil {
		return err
	}
	if j.Ready != nil {
		j.Ready()
	}
	for _, h := range hosts {
		for _, line := range h.ready.Against {
			fmt.Fprintf(j.Stderr, "%s: %s\n", h.name(), line)
		}
	}
	failed := make(chan error, len(hosts)) // one of each host at most
	var all sync.WaitGroup
	for _, h := range hosts {
		all.Go(func() { h.follow(hosts, failed) })
	}
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	return j.wait(hosts, failed, over, cancel)
}

// wait returns when all hosts are over, with the first failure.
func (j *Job) wait(hosts []*host, failed <-chan error, over <-chan struct{}, cancel func()) error {
	var first error
	var late <-chan time.Time
	asked := 0 // to end
	for {
		select {
		case s := <-j.Signals:
			number, _ := s.(syscall.Signal)
			tell(hosts, number)
			if number == syscall.SIGINT || number == syscall.SIGTERM || number == syscall.SIGHUP {
				if asked++; asked > 1 {
					cancel()
				}
			}
		case err := <-failed:
			if first == nil {
				first = err
				tell(hosts, syscall.SIGTERM)
				late = time.After(j.Grace)
			}
		case <-late:
			cancel() // which ends agents, and they what is left
		case <-over:
			select {
			case err := <-failed:
				if first == nil {
					first = err
				}
			default:
			}
			return first
		}
	}
}

// tell signals the processes of all hosts, without waiting for any.
func tell(hosts []*host, s syscall.Signal) {
	for _, h := range hosts {
		go func() { _ = h.call.Say(Word{Signal: int(s)}) }() // a host that does not hear it fails by itself
	}
}

// name is the host's for people.
func (h *host) name() string {
	if name := h.call.Host(); name != fleet.Here {
		return name
	}
	return "here"
}

// prepare waits until the host is ready.
func (h *host) prepare() error {
	var r Report
	if err := h.call.Next(&r); err != nil {
		return err
	}
	if r.Ready == nil {
		return fmt.Errorf("%s: is not ready, and gives no reason", h.name())
	}
	h.ready = r.Ready
	return nil
}

// follow starts the host's processes and hands on what they write, until all have ended. The first that fails, or else the
// host's own failure, is told once.
func (h *host) follow(hosts []*host, failed chan<- error) {
	told := false
	fail := func(err error) {
		if !told {
			failed <- err
		}
		told = true
	}
	if err := h.call.Say(Word{Start: &Start{h.variables(hosts)}}); err != nil {
		fail(err)
		return
	}
	for left := h.Processes; left > 0; {
		var r Report
		if err := h.call.Next(&r); err != nil {
			if err == io.EOF {
				err = fmt.Errorf("%s: ended before its processes did", h.name())
			}
			fail(err)
			return
		}
		switch {
		case r.Line != nil:
			h.write(r.Line)
		case r.Exit != nil:
			left--
			if r.Exit.Status != 0 {
				fail(&StatusError{h.who(r.Exit.Process), r.Exit.Status})
			}
		}
	}
}

// who names a process for people.
func (h *host) who(process int) string {
	if h.Processes == 1 {
		return h.name()
	}
	return fmt.Sprintf("%s:%d", h.name(), process)
}

var writing sync.Mutex // lines of one stream may be read as one of the other

func (h *host) write(l *Line) {
	to := h.Stdout
	if l.Error {
		to = h.Stderr
	}
	writing.Lock()
	defer writing.Unlock()
	fmt.Fprintf(to, "%s: %s\n", h.who(l.Process), l.Text)
}

// variables are those of the host's processes: by which torch.distributed and its like find each other, and what the host
// itself says its processes need, which is last, and so holds.
func (h *host) variables(hosts []*host) [][]string {
	first := hosts[0].ready
	address, port := h.MasterAddress, h.MasterPort
	if address == "" {
		address = first.Address
	}
	if port == 0 {
		port = first.Port
	}
	env := make([][]string, h.Processes)
	for i := range env {
		set := func(name string, value int) { env[i] = append(env[i], name+"="+strconv.Itoa(value)) }
		set("RANK", h.index*h.Processes+i)
		set("WORLD_SIZE", len(hosts)*h.Processes)
		set("LOCAL_RANK", i)
		set("LOCAL_WORLD_SIZE", h.Processes)
		set("NODE_RANK", h.index)
		set("GROUP_RANK", h.index)
		set("GROUP_WORLD_SIZE", len(hosts))
		set("NNODES", len(hosts))
		set("MASTER_PORT", port)
		env[i] = append(env[i], "MASTER_ADDR="+address)
		env[i] = append(env[i], h.ready.Env...)
	}
	return env
}

// CheckAddress says what is wrong with the address or name of the first host.
func CheckAddress(s string) error {
	if s == "" || strings.ContainsAny(s, " \t\n/") {
		return errors.New("want an address or a name that all hosts can reach")
	}
	if _, _, err := net.SplitHostPort(s); err == nil {
		return errors.New("want it without a port, which --master-port gives")
	}
	return nil
}
