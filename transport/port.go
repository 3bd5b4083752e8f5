package transport

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/forkfd"
	"ncclmesh/transport/topology"
)

// port is one RDMA port with its open device. The protection domain and the
// registrations belong to it and are shared by all connections of the process.
//
// The embedded Port is the port as it was opened: its names, its place and its
// speed stay true. What may change since, addresses and link, is in now.
type port struct {
	topology.Port
	index   uint8 // in what the peer is told
	seen    atomic.Pointer[portState]
	maxQPWR int
	maxCQE  int
	ctx     *ibv.Context
	pd      *ibv.PD
	stop    func() // ends the event watcher
	fds     []int  // that a forked child closes

	regMu sync.Mutex // held while memory is registered and deregistered, which may take long
	regs  map[regKey]*registration

	queueMu sync.Mutex            // a leaf: the event handler takes it
	queues  map[uint32]*queuePair // by queue pair number
}

// portState is a port as it was last seen.
type portState struct {
	topology.Port
	attr ibv.PortAttr
}

// now returns the port's present state, which is not to be changed.
func (p *port) now() *portState { return p.seen.Load() }

// see takes note of the port's present state, completed with what only the device
// knows, and reports whether it has changed.
func (p *port) see(t topology.Port) (changed bool, err error) {
	st := &portState{Port: t}
	if p.ctx != nil {
		if st.attr, err = p.ctx.QueryPort(p.Num); err != nil {
			return false, err
		}
		if mbps, err := p.ctx.PortSpeed(p.Num); err == nil && mbps > 0 {
			st.LinkMbps = mbps
		}
	}
	old := p.seen.Swap(st)
	return old == nil || !reflect.DeepEqual(*old, *st), nil
}

// regKey is what makes two registrations the same.
type regKey struct {
	addr, length uintptr
	access       uint32
}

// registration is a memory region shared by those that registered the same range.
type registration struct {
	key  regKey
	mr   *ibv.MR
	refs int
}

// openPort opens the device of p.
func openPort(lib *ibv.Library, dev *ibv.Device, p topology.Port, log *slog.Logger) (_ *port, err error) {
	o := &port{Port: p, regs: map[regKey]*registration{}, queues: map[uint32]*queuePair{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	forkfd.Do(func() {
		if o.ctx, err = dev.Open(); err == nil {
			fds := o.ctx.FDs()
			o.closedInChild(fds[:]...)
		}
	})
	if err != nil {
		return nil, err
	}
	da, err := o.ctx.QueryDevice()
	if err != nil {
		return nil, err
	}
	o.maxQPWR, o.maxCQE = int(da.MaxQPWR), int(da.MaxCQE)
	if _, err = o.see(p); err != nil {
		return nil, err
	}
	o.Port = o.now().Port
	if o.pd, err = o.ctx.AllocPD(); err != nil {
		return nil, err
	}
	forkfd.Do(func() {
		caught := func(p *guard.Panic) {
			log.Error(fmt.Sprintf("events of %s are no longer heard: %s", o.String(), p.Report()))
		}
		if o.stop, err = o.ctx.Events(func(e ibv.Event) { o.guardedEvent(e, log) }, caught); err == nil {
			o.closedInChild(o.ctx.EventsFD())
		}
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

// closedInChild makes a forked child close the device's descriptors, so that it
// does not keep the queue pairs alive that this process leaves.
func (p *port) closedInChild(fds ...int) {
	for _, fd := range fds {
		forkfd.Mark(fd)
	}
	p.fds = append(p.fds, fds...)
}

// describe completes what the peer is told with what only the device knows.
func (p *port) describe(h *handshake.Port) {
	st := p.now()
	h.MTU, h.MaxMsgSize = uint8(st.attr.ActiveMTU), st.attr.MaxMsgSz
}

// guardedEvent is event. A panic in it fails the connection that the event is about.
func (p *port) guardedEvent(e ibv.Event, log *slog.Logger) {
	guard.Run(func() { p.event(e, log) }, func(panicked *guard.Panic) {
		log.Error(fmt.Sprintf("event of %s: %s", p.String(), panicked.Report()))
		if q := p.queueOf(e); q != nil {
			q.conn.fail(fmt.Errorf("%w: %v: %s: %w", ErrInternal, q.conn, e.Name, panicked))
		}
	})
}

// queueOf is the queue pair that an event is about, or nil.
func (p *port) queueOf(e ibv.Event) *queuePair {
	p.queueMu.Lock()
	defer p.queueMu.Unlock()
	return p.queues[e.QPN]
}

// event handles an asynchronous event of the device. Until it returns, the queue
// pair that the event speaks of cannot be destroyed, and who destroys it holds its
// connection's mutex: so it takes none of those. A port's event alone ends nothing:
// the lanes on it find out for themselves.
func (p *port) event(e ibv.Event, log *slog.Logger) {
	switch e.Type {
	case ibv.IBV_EVENT_QP_FATAL, ibv.IBV_EVENT_QP_REQ_ERR, ibv.IBV_EVENT_QP_ACCESS_ERR:
		if q := p.queueOf(e); q != nil {
			q.conn.asyncFailure(q.lane, e.Name)
		}
	case ibv.IBV_EVENT_PORT_ERR:
		log.Warn("port went down; check the cable", "port", p.String(), "event", e.Name)
	case ibv.IBV_EVENT_DEVICE_FATAL:
		p.queueMu.Lock()
		queues := slices.Collect(maps.Values(p.queues))
		p.queueMu.Unlock()
		for _, q := range queues {
			q.conn.asyncFailure(q.lane, e.Name)
		}
		log.Warn("device failed", "port", p.String(), "event", e.Name, "queue pairs", len(queues))
	default:
		log.Debug("device event", "port", p.String(), "event", e.Name)
	}
}

// watch makes asynchronous events of a queue pair reach it.
func (p *port) watch(q *queuePair) {
	p.queueMu.Lock()
	p.queues[q.qp.Num()] = q
	p.queueMu.Unlock()
}

func (p *port) unwatch(q *queuePair) {
	p.queueMu.Lock()
	if p.queues[q.qp.Num()] == q {
		delete(p.queues, q.qp.Num())
	}
	p.queueMu.Unlock()
}

// short names the port in messages that name many.
func (p *port) short() string {
	if p.Device == "" {
		return p.Netdev
	}
	return fmt.Sprintf("%s:%d", p.Device, p.Num)
}

// register returns the registration of a range, shared with others that hold it.
func (p *port) register(k regKey) (*registration, error) {
	p.regMu.Lock()
	defer p.regMu.Unlock()
	if r := p.regs[k]; r != nil {
		r.refs++
		return r, nil
	}
	mr, err := p.pd.RegMR(k.addr, k.length, k.access)
	if err != nil {
		return nil, err
	}
	r := &registration{key: k, mr: mr, refs: 1}
	p.regs[k] = r
	return r, nil
}

// release gives a registration back; the last holder's ends it.
func (p *port) release(r *registration) error {
	p.regMu.Lock()
	defer p.regMu.Unlock()
	if r.refs > 1 {
		r.refs--
		return nil
	}
	return p.endLocked(r)
}

// releaseAlone gives a registration back that nobody else holds, and ends it with
// that; it reports false for others.
func (p *port) releaseAlone(r *registration) (alone bool, err error) {
	p.regMu.Lock()
	defer p.regMu.Unlock()
	if r.refs > 1 {
		return false, nil
	}
	return true, p.endLocked(r)
}

// endLocked ends a registration with its last holder. One that does not end stays
// with the holder.
func (p *port) endLocked(r *registration) error {
	if err := r.mr.Close(); err != nil {
		return err
	}
	delete(p.regs, r.key)
	return nil
}

func (p *port) close() error {
	var errs []error
	if p.stop != nil {
		p.stop()
	}
	if n := len(p.regs); n > 0 {
		errs = append(errs, fmt.Errorf("%w: %d memory regions still registered on %s", ErrInternal, n, p.String()))
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
