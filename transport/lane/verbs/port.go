package verbs

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/random"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/forkfd"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/threads"
	"ncclmesh/transport/topology"
	"ncclmesh/transport/turn"
)

// Options are the attributes of queue pairs and registrations.
type Options struct {
	TrafficClass    int // RoCE traffic class
	ServiceLevel    int
	PKeyIndex       int
	Timeout         int    // local ACK timeout, 4.096 µs · 2^n
	ProbeTimeout    int    // the same for queue pairs that only carry probe packets
	RetryCount      int    // transport retries
	RNRRetry        int    // receiver-not-ready retries
	RelaxedOrdering bool   // for writes into user memory, if the device supports it
	NoECE           bool   // the ends of a queue pair do not agree on options of their adapters; see ece.go
	NoDataDirect    bool   // a function for GPU memory that the adapter may have is not looked for; see datadirect.go
	Sysfs           string // root of sysfs; "/sys"
	GIDs            topology.GIDPolicy

	// GPUBuffer returns a number for the allocation of GPU memory that an address lies in, which no later
	// allocation has. It returns false if that is unknown. Nil: it always is.
	GPUBuffer func(addr uintptr) (number uint64, known bool)

	Resolving *threads.Pool // runs the transition to RTR, which may block in the kernel for a second
	Random    random.Source
	Log       *slog.Logger
}

// Port is one RDMA port with its open device.
type Port struct {
	lane.Local
	opts    Options
	attr    atomic.Pointer[ibv.PortAttr] // as last seen
	maxQPWR int
	maxCQE  int
	// READs of a queue pair that the device may have outstanding as requester and as responder.
	maxReads, maxReadsIn int
	ctx                  *ibv.Context
	pd                   *ibv.PD
	takesDMABufs         bool
	dataDirect           string // see DataDirect
	usesDataDirect       bool
	stop                 func() // stops the event goroutine
	fds                  []int  // descriptors that a forked child closes

	regMu turn.Turn     // held during registration and deregistration, which may take long
	regs  []*registered // in the order in which they were made

	eceWarning sync.Once // that lanes fail because of ECE

	queueMu sync.Mutex            // a leaf lock: the event handler takes it
	queues  map[uint32]*lane.Lane // by number of the queue pair
}

var (
	_ lane.Port         = (*Port)(nil)
	_ lane.Domain       = (*domain)(nil)
	_ lane.Carrier      = (*queuePair)(nil)
	_ lane.Registration = (*holder)(nil)
)

// Open opens the device of port t. index is the port's number among the node's ports.
func Open(lib *ibv.Library, dev *ibv.Device, t topology.Port, index uint8, o Options) (_ *Port, err error) {
	p := &Port{opts: o, queues: map[uint32]*lane.Lane{}}
	p.Set(index, t)
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	forkfd.Do(func() {
		if p.ctx, err = dev.Open(); err == nil {
			fds := p.ctx.FDs()
			p.closedInChild(fds[:]...)
		}
	})
	if err != nil {
		return nil, err
	}
	da, err := p.ctx.QueryDevice()
	if err != nil {
		return nil, err
	}
	p.maxQPWR, p.maxCQE = int(da.MaxQPWR), int(da.MaxCQE)
	p.maxReads, p.maxReadsIn = max(1, int(da.MaxQPInitRdAtom)), max(1, int(da.MaxQPRdAtom))
	if _, err = p.See(t); err != nil {
		return nil, err
	}
	if p.pd, err = p.ctx.AllocPD(); err != nil {
		return nil, err
	}
	p.takesDMABufs = p.pd.TakesDMABufs()
	p.findDataDirect()
	return p, p.watchEvents()
}

// TakesDMABufs reports whether the kernel and the device register memory by DMA-BUFs. The answer does not change.
func (p *Port) TakesDMABufs() bool { return p.takesDMABufs }

// watchEvents starts the goroutine that receives the device's asynchronous events.
func (p *Port) watchEvents() (err error) {
	forkfd.Do(func() {
		caught := func(g *guard.Panic) {
			p.opts.Log.Error(fmt.Sprintf("events of %v are no longer received: %s", p, g.Report()))
		}
		if p.stop, err = p.ctx.Events(p.guardedEvent, caught); err == nil {
			p.closedInChild(p.ctx.EventsFD())
		}
	})
	return err
}

// closedInChild makes a forked child close the device's descriptors, because an open descriptor would keep this
// process's queue pairs alive after it ends.
func (p *Port) closedInChild(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 { // a simulated device has none
			forkfd.Mark(fd)
			p.fds = append(p.fds, fd)
		}
	}
}

// Kind returns [lane.Verbs].
func (p *Port) Kind() lane.Kind { return lane.Verbs }

// Traits returns no special properties, because the device does all of a lane's work.
func (p *Port) Traits() lane.Traits { return lane.Traits{} }

// See records the port's present state, with the attributes that only the device knows, and reports whether it
// has changed.
func (p *Port) See(t topology.Port) (changed bool, err error) {
	attr, err := p.ctx.QueryPort(t.Num)
	if err != nil {
		return false, err
	}
	if mbps, err := p.ctx.PortSpeed(t.Num); err == nil && mbps > 0 {
		t.LinkMbps = mbps
	}
	old := p.attr.Swap(&attr)
	changed = p.Local.See(t)
	return changed || old == nil || !reflect.DeepEqual(*old, attr), nil
}

// Describe adds the MTU and the largest message size to the port's description for peers.
func (p *Port) Describe(h *handshake.Port) {
	attr := p.attr.Load()
	h.MTU, h.MaxMsgSize = uint8(attr.ActiveMTU), attr.MaxMsgSz
}

// Close closes the device. All domains and registrations must have been closed.
func (p *Port) Close() error {
	var errs []error
	if p.stop != nil {
		p.stop()
	}
	if n := len(p.regs); n > 0 {
		errs = append(errs, fmt.Errorf("%w: %d memory regions still registered on %v", fault.ErrInternal, n, p))
	}
	if p.pd != nil {
		errs = append(errs, p.pd.Close())
	}
	for _, fd := range p.fds {
		forkfd.Clear(fd)
	}
	if p.ctx != nil {
		errs = append(errs, p.ctx.Close())
	}
	return errors.Join(errs...)
}
