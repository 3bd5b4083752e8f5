package engine

import (
	"errors"
	"slices"

	"ncclmesh/ibv"
	"ncclmesh/transport/forkfd"
	"ncclmesh/transport/relay/hop"
)

// endpointsPerQueue is how many endpoints share a completion queue.
const endpointsPerQueue = 16

// device is the objects that the endpoints on one device share: a completion channel, and as many completion queues as
// needed. Forwarder.makeTurn guards it.
type device struct {
	ctx    *ibv.Context
	ch     *ibv.CompChannel
	queues []*queue
}

// queue is a completion queue.
type queue struct {
	*ibv.CQ
	dev       *device
	endpoints int // guarded by Forwarder.mu
}

// reserveQueue reserves room for an endpoint in a completion queue of a device.
func (f *Forwarder) reserveQueue(ctx *ibv.Context) (*queue, error) {
	f.makeTurn.Lock()
	defer f.makeTurn.Unlock()
	i := slices.IndexFunc(f.devices, func(d *device) bool { return d.ctx == ctx })
	if i < 0 {
		d, err := newDevice(ctx)
		if err != nil {
			return nil, err
		}
		i = len(f.devices)
		f.devices = append(f.devices, d)
	}
	d := f.devices[i]
	if q := f.reserveIn(d); q != nil {
		return q, nil
	}
	cq, err := ctx.CreateCQ(endpointsPerQueue*hop.Completions(max(hop.TowardsReceiver, hop.TowardsSender)), d.ch)
	if err != nil {
		return nil, err
	}
	q := &queue{CQ: cq, dev: d, endpoints: 1}
	d.queues = append(d.queues, q)
	all := append(slices.Clone(*f.queues.Load()), q)
	f.queues.Store(&all)
	f.wake()
	return q, nil
}

// reserveIn reserves room in an existing completion queue of a device. It returns nil if all are full.
func (f *Forwarder) reserveIn(d *device) *queue {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range d.queues {
		if q.endpoints < endpointsPerQueue {
			q.endpoints++
			return q
		}
	}
	return nil
}

// releaseQueue releases the room of one endpoint.
func (f *Forwarder) releaseQueue(q *queue) {
	f.mu.Lock()
	q.endpoints--
	f.mu.Unlock()
}

func newDevice(ctx *ibv.Context) (d *device, err error) {
	d = &device{ctx: ctx}
	forkfd.Do(func() {
		if d.ch, err = ctx.CreateCompChannel(); err == nil {
			mark(d.ch.FD())
		}
	})
	if err != nil {
		return nil, err
	}
	if err := d.ch.SetNonblock(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *device) close() error {
	var errs []error
	for _, q := range d.queues {
		errs = append(errs, q.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	unmark(d.ch.FD())
	return d.ch.Close()
}
