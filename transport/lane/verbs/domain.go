package verbs

import (
	"errors"
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/board"
	"ncclmesh/transport/lane"
)

const pollBatch = 32 // completions polled at once

// domain holds the resources that a connection's queue pairs on one device share: the completion queue and the
// registration of the connection's control ring.
type domain struct {
	port     *Port
	conn     *lane.Shared
	place    int // index among the connection's domains
	writes   int // work requests of one part, at most
	capacity int // queue pairs that the completion queue has room for
	mem      *ibv.Memory
	cq       *ibv.CQ
	ringMR   *ibv.MR // registration of the control ring
	wc       []ibv.WC
	loop     Loopback                  // for GPU memory
	source   *board.Source             // the completion queue, as C polls it; C puts the entries into wc
	sends    int                       // signalled sends whose completion has not been polled
	qps      [lane.MaxParts]*queuePair // by lane; nil for lanes of other domains

	// undrained says that a queue pair was destroyed before it was drained, so that completions of it may still
	// arrive.
	undrained bool
}

// Open creates a connection's completion queue and registers its control ring.
func (p *Port) Open(c *lane.Shared, place int, to []handshake.Port) (_ lane.Domain, err error) {
	d := &domain{port: p, conn: c, place: place, writes: 1, capacity: len(to)}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if c.Sending && !c.Probe {
		for i := range to {
			d.writes = max(d.writes, mostWrites(chunkOf(p.attr.Load().MaxMsgSz, to[i].MaxMsgSize)))
		}
	}
	if d.mem, err = ibv.Alloc(pollBatch*64 + board.SourceSize); err != nil {
		return nil, err
	}
	d.wc = ibv.Carve[ibv.WC](d.mem, pollBatch)
	depth := sendSlack + recvDepth
	switch {
	case c.Probe:
		depth = probeDepth
	case c.Sending:
		depth = 2 * (lane.Window + d.writes)
	}
	depth = len(to) * (depth + 2)
	if depth > p.maxCQE {
		return nil, fmt.Errorf("%v: %d queue pairs need a completion queue of %d entries and the device has %d; lower NCCL_IB_QPS_PER_CONNECTION", p, len(to), depth, p.maxCQE)
	}
	if d.cq, err = p.ctx.CreateCQ(depth, nil); err != nil {
		return nil, err
	}
	poll, queue := d.cq.Raw()
	d.source = board.NewSource(d.mem, poll, queue, d.mem.Addr(), len(d.wc))
	d.ringMR, err = p.pd.RegMR(c.Ring.Base(), lane.ControlRingSize, ibv.IBV_ACCESS_LOCAL_WRITE|ibv.IBV_ACCESS_REMOTE_WRITE)
	return d, err
}

func (d *domain) Key() uint32 { return d.ringMR.RKey() }

func (d *domain) Port() lane.Port { return d.port }

// HasRoom reports whether the completion queue has room for another queue pair.
func (d *domain) HasRoom() bool {
	n := 0
	for _, q := range d.qps {
		if q != nil {
			n++
		}
	}
	return n < d.capacity
}

// NewLane creates the queue pair that carries l, in state INIT.
func (d *domain) NewLane(l *lane.Lane) (lane.Carrier, error) {
	if err := d.loop.Renew(); err != nil {
		return nil, err
	}
	q, err := newQueuePair(d, l)
	if err != nil {
		return nil, err
	}
	d.qps[l.Index] = q
	return q, nil
}

// Close destroys the completion queue and the registration.
func (d *domain) Close() error {
	errs := []error{d.loop.Close()}
	if d.cq != nil {
		errs = append(errs, d.cq.Close())
	}
	if d.ringMR != nil {
		errs = append(errs, d.ringMR.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return err // the device may still write completions
	}
	if d.mem != nil {
		errs = append(errs, d.mem.Free())
		d.mem = nil
	}
	return errors.Join(errs...)
}

// Poll handles the completions that have arrived. It does nothing if none can have arrived.
func (d *domain) Poll(receiving bool) {
	if d.sends > 0 || receiving {
		d.poll()
	}
}

// Source returns the completion queue, for C to poll.
func (d *domain) Source() *board.Source { return d.source }

// Flush does nothing, because the device acknowledges writes.
func (d *domain) Flush(bool) {}

// Register registers memory on the device.
func (d *domain) Register(m lane.Memory) (lane.Registration, error) {
	return d.port.RegisterFor(d.conn, &d.loop, m)
}

// StartFlush and Flushed make what has arrived visible to a GPU.
func (d *domain) StartFlush(r *lane.Region, addr uintptr) (bool, error) {
	return d.loop.StartFlush(d.place, r, addr)
}
func (d *domain) Flushed() (bool, error) { return d.loop.Flushed() }

// poll handles all completions that have arrived, first those that C has polled. It returns at once if C is
// polling the queue, because C then calls Go.
func (d *domain) poll() {
	if !d.source.TryAcquire() {
		return
	}
	defer d.source.Release()
	d.dispatch(d.source.Take())
	for {
		n, err := d.cq.Poll(d.wc)
		if err != nil {
			d.conn.Owner.Fail(fmt.Errorf("%v: %v: %w", d.conn, d.port, err))
			return
		}
		d.dispatch(n)
		if n < len(d.wc) {
			return
		}
	}
}

// dispatch handles the first n completions in wc.
func (d *domain) dispatch(n int) {
	for i := range n {
		d.complete(&d.wc[i])
	}
}
