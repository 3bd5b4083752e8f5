package comm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"ncclmesh/comm/bootstrap"
	"ncclmesh/handshake"
	"ncclmesh/ncclnet/config"
	"ncclmesh/transport"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/turn"
)

// A Host is what the package needs of the surrounding process.
type Host struct {
	Getenv  func(name string) string // reads the environment
	Environ func() []string          // returns it, as NAME=value
	Machine transport.Machine        // the machine that the process runs on
	GPU     GPU
	Log     func(level slog.Level, text string)
	Spins   int // how often a call that waits polls before its first pause; 0 in virtual time

	// Lookup returns the addresses of a host name. Nil: names are not accepted.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
}

// A Process is the transport of this process and the settings of its communicators. The program makes one and keeps it for good.
// The transport is open while there is a Comm, or the root of a job that other ranks still need.
type Process struct {
	host    Host
	log     *slog.Logger
	level   slog.LevelVar
	timeout atomic.Int64 // of the bootstrap, in nanoseconds

	mu         turn.Turn // held while the transport opens and closes
	open       *mesh
	references int
}

// A mesh is an open transport.
type mesh struct {
	*transport.Transport
	bootstrap *bootstrap.Host
}

// NewProcess returns a process whose transport is not open yet.
func NewProcess(host Host) *Process {
	p := &Process{host: host}
	p.log = slog.New(&logHandler{write: host.Log, level: &p.level})
	p.timeout.Store(int64(bootstrap.DefaultTimeout))
	return p
}

// SetBootstrapTimeout sets how long InitRank, InitRankFromID, Setup, AllGather, Barrier, Register and StopProxies wait for other
// ranks: 30 s unless it is called. It holds for calls that begin later.
func (p *Process) SetBootstrapTimeout(d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%w: a time-out of %v, want a positive one", ErrArgument, d)
	}
	p.timeout.Store(int64(d))
	return nil
}

func (p *Process) bootstrapTimeout() time.Duration { return time.Duration(p.timeout.Load()) }

// acquire opens the transport, if it is not open, and keeps it open until release.
func (p *Process) acquire() (*mesh, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		m, err := p.openMesh()
		if err != nil {
			return nil, err
		}
		p.open = m
	}
	p.references++
	return p.open, nil
}

// retain keeps the open transport open until the function that it returns is called.
//
// Preconditions: the caller has a reference.
func (p *Process) retain() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.references++
	return func() {
		if err := p.release(); err != nil {
			p.log.Warn("closing the transport left something behind", "err", err)
		}
	}
}

// release gives a reference back. With the last one it closes the transport.
func (p *Process) release() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.references--; p.references > 0 {
		return nil
	}
	m := p.open
	p.open = nil
	return m.Close()
}

// openMesh reads the environment and opens the transport.
func (p *Process) openMesh() (*mesh, error) {
	p.level.Set(slog.LevelWarn)
	c, err := config.Read(p.host.Getenv)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fault.ErrUsage, err)
	}
	if talkative(p.host.Getenv("NCCL_DEBUG")) {
		p.level.Set(c.Level)
	}
	for _, line := range config.Unknown(p.host.Environ()) {
		p.log.Warn(line)
	}
	p.log.Info(fmt.Sprintf("build %s, protocol %d", handshake.Build(), handshake.Version))
	o := c.OfCommunicator(-1)
	o.Machine, o.Log = p.host.Machine, p.log
	o.GPUBuffer, o.FlushGPU = p.host.GPU.Buffer, p.host.GPU.Flush
	o.Settings = slices.DeleteFunc(config.Told(p.host.Getenv), func(s handshake.Setting) bool {
		return s.Rule != handshake.RuleSettled // the others are about NCCL's choice of algorithms
	})
	t, err := transport.New(o)
	if err != nil {
		return nil, err
	}
	return &mesh{t, &bootstrap.Host{
		Transport: t, Network: o.Machine.Network, Clock: o.Machine.Clock.WithScale(cmp.Or(o.TimeScale, 1)), Random: o.Machine.Random, Key: o.Key,
		Log: p.log, Spins: p.host.Spins, Lookup: p.host.Lookup, Retain: p.retain,
	}}, nil
}

// talkative reports whether a value of NCCL_DEBUG asks for more than warnings.
func talkative(debug string) bool {
	return slices.Contains([]string{"INFO", "ABORT", "TRACE"}, strings.ToUpper(strings.TrimSpace(debug)))
}

// Guarded calls f for a program that Go's panics must not reach. A panic is logged with its stack, and becomes an error.
func (p *Process) Guarded(f func() error) error {
	return fault.Guarded(p.log, "a call of the program", f)
}

// FlushBeforeExit waits until the peers have received the sent data, for a limited time. It is for a process that is about to end
// without having closed its communicators.
func (p *Process) FlushBeforeExit() {
	if !p.mu.TryLock() { // the transport is being opened or closed
		return
	}
	m := p.open
	p.mu.Unlock()
	if m != nil {
		m.FlushBeforeExit()
	}
}

// An ID identifies a job. It contains a secret: any process that has it may join, and write to the memory of all ranks.
type ID = bootstrap.ID

// UniqueID makes the ID of a job. One process makes it, usually that of rank 0, and passes it to the others by any means. This
// process serves the bootstrap of the job, and has to live until all ranks have closed their Comm.
func (p *Process) UniqueID() (id ID, err error) {
	m, err := p.acquire()
	if err != nil {
		return id, err
	}
	root, err := m.bootstrap.NewRoot(0) // it keeps the transport open
	if err == nil {
		id = root.ID()
	}
	return id, errors.Join(err, p.release())
}
