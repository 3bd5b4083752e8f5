package ncclnet

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"ncclmesh/handshake"
	"ncclmesh/ncclnet/config"
	"ncclmesh/transport"
	"ncclmesh/transport/topology"
	"ncclmesh/transport/turn"
)

// A Host is what the surrounding process lends the plugin. Go's own copy of the
// environment lacks what the host set after it started.
type Host struct {
	Getenv  func(name string) string
	Environ func() []string
	Machine transport.Machine // that the process is on

	// PublishBoard makes the board of a connection known to C, UnpublishBoard undoes that. They are nil if C passes
	// every call to Go.
	PublishBoard, UnpublishBoard func(comm Handle, board uintptr)

	// StartEvent tells NCCL's profiler, through its callback, of a part of a message that it
	// knows as step, and returns what it calls that, or 0: nobody listens. StopEvent says
	// that the part is through. Nil: there is no profiler.
	StartEvent func(callback, step uintptr, e Event) uintptr
	StopEvent  func(callback, event uintptr)
}

// A Process is the one end of the mesh that a process has, open while somebody
// holds it.
//
// Who loads this package makes one and keeps it for good. What it opens belongs to
// all holders together: each context of a [Net], the tuner while it looks at the
// mesh, a command for as long as it runs. The first Hold reads the environment and
// opens, the last Release closes, and a Hold after that opens anew. An opening that
// failed leaves nothing behind, and the next Hold tries again.
//
// Hold and Release may be called from any goroutine. They wait for an opening or a
// closing under way, so that two ends never overlap, and so may not be called
// out of a Logger or by what is being opened or closed. Whoever holds needs no lock.
type Process struct {
	host  Host
	open  func(transport.Options) (network, error)
	log   *slog.Logger // to the latest holder that has a logger
	level slog.LevelVar

	mesh atomic.Pointer[mesh] // what is open, or nil; written under mu

	mu    turn.Turn // above saying; held while opening and closing
	holds []*Hold   // in the order they came

	saying sync.Mutex // a leaf, held while any logger is called: who waits for its turn inside C keeps a thread
	logger Logger     // the log's; guarded by saying
}

// A mesh is what a Process opened, and stays as it is.
type mesh struct {
	net    network
	device topology.Device
	tuning config.Tuning
	told   []handshake.Setting // what peers are told of the settings
}

// A Hold is one user's share of a Process.
type Hold struct {
	*mesh
	process *Process
	logger  Logger // guarded by process.mu
}

// NewProcess returns one that nobody holds yet.
func NewProcess(host Host) *Process { return newProcess(host, openTransport) }

func newProcess(host Host, open func(transport.Options) (network, error)) *Process {
	p := &Process{host: host, open: open}
	p.log = slog.New(&logHandler{logger: p.write, level: &p.level})
	return p
}

// Hold opens the mesh, if it is not open, and keeps it so until Release. The log
// goes to logger, unless that is nil, until another holder comes or this one is
// gone. trafficClass is a communicator's, or -1; that of who opens holds for all.
func (p *Process) Hold(logger Logger, trafficClass int) (*Hold, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := &Hold{process: p, logger: logger}
	p.holds = append(p.holds, h)
	p.logToLatestLocked()
	defer func() {
		if h.mesh == nil { // refused, or a panic passes
			p.leaveLocked(h)
		}
	}()
	if p.mesh.Load() == nil {
		m, err := p.openMesh(trafficClass)
		if err != nil {
			return nil, err
		}
		p.mesh.Store(m)
	}
	h.mesh = p.mesh.Load()
	return h, nil
}

// HoldOpen is Hold for who has no use for a mesh that nobody else has opened: nil
// where that is so.
func (p *Process) HoldOpen() *Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.mesh.Load()
	if m == nil {
		return nil
	}
	h := &Hold{mesh: m, process: p}
	p.holds = append(p.holds, h)
	return h
}

// Release ends a hold, and closes the mesh if it was the last: it returns when that
// has been done, and the holder's logger is not called any more. Ending it again
// does nothing.
func (h *Hold) Release() error {
	p := h.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.holds, h) {
		return nil
	}
	defer p.leaveLocked(h) // after the closing, which logs
	if len(p.holds) > 1 {
		return nil
	}
	p.mesh.Store(nil)
	return h.net.Close()
}

// LogTo makes logger the holder's, as if it had come just now with it.
func (h *Hold) LogTo(logger Logger) {
	p := h.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.holds, h); i >= 0 {
		h.logger = logger
		p.holds = append(slices.Delete(p.holds, i, i+1), h)
		p.logToLatestLocked()
	}
}

func (p *Process) leaveLocked(h *Hold) {
	p.holds = slices.DeleteFunc(p.holds, func(other *Hold) bool { return other == h })
	p.logToLatestLocked()
}

// logToLatestLocked settles where the log goes. When it returns, no other logger is
// being called.
func (p *Process) logToLatestLocked() {
	var latest Logger
	for _, h := range p.holds {
		if h.logger != nil {
			latest = h.logger
		}
	}
	p.saying.Lock()
	defer p.saying.Unlock()
	p.logger = latest
}

func (p *Process) openMesh(trafficClass int) (*mesh, error) {
	p.level.Set(slog.LevelInfo)
	c, err := config.Read(p.host.Getenv)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	p.level.Set(c.Level)
	for _, line := range config.Unknown(p.host.Environ()) {
		p.log.Warn(line)
	}
	p.log.Info(fmt.Sprintf("build %s, protocol %d", handshake.Build(), handshake.Version))
	options := c.OfCommunicator(trafficClass)
	options.Machine, options.Log, options.Settings = p.host.Machine, p.log, config.Told(p.host.Getenv)
	net, err := p.open(options)
	if err != nil {
		return nil, err
	}
	return &mesh{net, net.Device(), c.Tuning, options.Settings}, nil
}

// logTo is a log of this process that goes to one logger, for the length of a call
// that brought it.
func (p *Process) logTo(logger Logger) *slog.Logger {
	handler := &logHandler{level: &p.level}
	if logger != nil {
		handler.logger = func(level, subsystems int, file string, line int, text string) {
			p.saying.Lock()
			defer p.saying.Unlock()
			logger(level, subsystems, file, line, text)
		}
	}
	return slog.New(handler)
}

func (p *Process) write(level, subsystems int, file string, line int, text string) {
	p.saying.Lock()
	defer p.saying.Unlock()
	if p.logger != nil {
		p.logger(level, subsystems, file, line, text)
	}
}

// settle is the open end's Settle, if there is one.
func (p *Process) settle() {
	if m := p.mesh.Load(); m != nil {
		m.net.Settle()
	}
}
