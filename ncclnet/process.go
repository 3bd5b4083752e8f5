package ncclnet

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"ncclmesh/cuda"
	"ncclmesh/handshake"
	"ncclmesh/ncclnet/config"
	"ncclmesh/ncclnet/gpudirect"
	"ncclmesh/transport"
	"ncclmesh/transport/topology"
	"ncclmesh/transport/turn"
)

// A Host is the part of the surrounding process that the plugin needs. It includes the environment, because Go's own
// copy lacks variables that the host has set after its start.
type Host struct {
	Getenv  func(name string) string
	Environ func() []string
	Machine transport.Machine // the machine that the process runs on

	// GPU is CUDA as the process has loaded it.
	GPU GPU

	// PublishBoard gives C access to the board of a connection, and UnpublishBoard ends it. Nil: C calls Go for every
	// request.
	PublishBoard, UnpublishBoard func(comm Handle, board uintptr)

	// StartEvent starts an event of NCCL's profiler, through its callback, for a part of a message that the profiler
	// knows as step. It returns the event, or 0 if the profiler made none. StopEvent ends the event. Nil: there is no
	// profiler.
	StartEvent func(callback, step uintptr, e Event) uintptr
	StopEvent  func(callback, event uintptr)
}

// A Process is the shared transport of a process, open while there is a reference to it.
//
// The program that loads this package makes one and keeps it for good. The transport is shared by
// all references: of each context of a [Net], of the tuner while it reads the
// mesh, of a command while it runs. The first Acquire reads the environment and
// opens the transport, the last Release closes it, and a later Acquire opens it again. After an error
// of Acquire nothing stays open, and the next Acquire tries again.
//
// Acquire and Release may be called from any goroutine. They wait while another call opens or
// closes the transport, so that two transports never overlap. Therefore they must not be called
// from a Logger, or by code that is being opened or closed. A caller that has a reference needs no lock.
type Process struct {
	host  Host
	open  func(transport.Options) (network, error)
	log   *slog.Logger // writes to the logger of the latest reference that has one
	level slog.LevelVar

	mesh atomic.Pointer[mesh] // nil: not open; written under mu

	mu         turn.Turn    // taken before logMu; held while opening and closing
	references []*Reference // in the order in which they were acquired

	logMu  sync.Mutex // a leaf lock, held while any logger is called; a waiter inside C would block a thread
	logger Logger     // the logger of log; guarded by logMu
}

// A mesh is an open transport with its configuration. It does not change.
type mesh struct {
	net      network
	device   topology.Device
	tuning   config.Tuning
	settings []handshake.Setting // settings that are sent to peers
	offer    gpudirect.Offer     // of GPU memory
	gpu      cuda.Attributes
}

// A Reference keeps the transport of a Process open.
type Reference struct {
	*mesh
	process *Process
	logger  Logger // guarded by process.mu
}

// NewProcess returns a Process without a reference.
func NewProcess(host Host) *Process { return newProcess(host, openTransport) }

func newProcess(host Host, open func(transport.Options) (network, error)) *Process {
	p := &Process{host: host, open: open}
	p.log = slog.New(&logHandler{logger: p.write, level: &p.level})
	return p
}

// Acquire opens the transport, if it is not open, and keeps it open until Release. The log goes to logger, unless that
// is nil, until a later reference has another logger or this one is released. trafficClass is a communicator's, or -1;
// the value of the caller that opens the transport holds for all.
func (p *Process) Acquire(logger Logger, trafficClass int) (*Reference, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := &Reference{process: p, logger: logger}
	p.references = append(p.references, h)
	p.logToLatestLocked()
	defer func() {
		if h.mesh == nil { // an error, or a panic
			p.dropLocked(h)
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

// AcquireIfOpen returns a reference if the transport is open, and otherwise nil. It never opens it.
func (p *Process) AcquireIfOpen() *Reference {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.mesh.Load()
	if m == nil {
		return nil
	}
	h := &Reference{mesh: m, process: p}
	p.references = append(p.references, h)
	return h
}

// Release releases a reference. If it was the last, Release closes the transport and returns when it is closed. After
// that the reference's logger is not called any more. Further calls have no effect.
func (h *Reference) Release() error {
	p := h.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.references, h) {
		return nil
	}
	defer p.dropLocked(h) // after the closing, which logs
	if len(p.references) > 1 {
		return nil
	}
	p.mesh.Store(nil)
	return h.net.Close()
}

// LogTo sets the reference's logger, and makes the reference the latest one.
func (h *Reference) LogTo(logger Logger) {
	p := h.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.references, h); i >= 0 {
		h.logger = logger
		p.references = append(slices.Delete(p.references, i, i+1), h)
		p.logToLatestLocked()
	}
}

func (p *Process) dropLocked(h *Reference) {
	p.references = slices.DeleteFunc(p.references, func(other *Reference) bool { return other == h })
	p.logToLatestLocked()
}

// logToLatestLocked sets the logger of the log. After it has returned, no other logger is being called. It needs
// Process.mu.
func (p *Process) logToLatestLocked() {
	var latest Logger
	for _, h := range p.references {
		if h.logger != nil {
			latest = h.logger
		}
	}
	p.logMu.Lock()
	defer p.logMu.Unlock()
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
	options.GPUBuffer, options.FlushGPU = p.host.GPU.Buffer, p.host.GPU.Flush
	net, err := p.open(options)
	if err != nil {
		if c.TCPLeftOut {
			err = fmt.Errorf("%w; NCCL_MESH_GDR=1 leaves out lanes over TCP, as NCCL_MESH_TRANSPORT=rdma does", err)
		}
		return nil, err
	}
	offer, gpu, err := p.offerGPUMemory(c, net.GPUReach())
	if err != nil {
		return nil, errors.Join(err, net.Close())
	}
	device := net.Device()
	if !offer.DMABuf {
		device.DataDirect = ""
	} else if device.DataDirect != "" {
		p.log.Info("the adapters reach GPU memory by PCIe functions of their own (Data Direct); NCCL sees the mesh at " + device.DataDirect)
	}
	return &mesh{net, device, c.Tuning, options.Settings, offer, gpu}, nil
}

// logTo returns a log that writes to one logger, for the duration of the call that passed the logger.
func (p *Process) logTo(logger Logger) *slog.Logger {
	handler := &logHandler{level: &p.level}
	if logger != nil {
		handler.logger = func(level, subsystems int, file string, line int, text string) {
			p.logMu.Lock()
			defer p.logMu.Unlock()
			logger(level, subsystems, file, line, text)
		}
	}
	return slog.New(handler)
}

func (p *Process) write(level, subsystems int, file string, line int, text string) {
	p.logMu.Lock()
	defer p.logMu.Unlock()
	if p.logger != nil {
		p.logger(level, subsystems, file, line, text)
	}
}

// flushBeforeExit calls FlushBeforeExit of the transport, if it is open.
func (p *Process) flushBeforeExit() {
	if m := p.mesh.Load(); m != nil {
		m.net.FlushBeforeExit()
	}
}
