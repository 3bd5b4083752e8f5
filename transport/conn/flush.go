package conn

import (
	"fmt"
	"sync"
	"sync/atomic"

	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// Flush is a request that makes data in GPU memory, which has arrived, visible to the GPU. A device may report that data has
// arrived before its writes have reached the GPU; a READ by the same device comes behind them.
type Flush struct {
	r           *Receiver
	index       int
	generation  uint64
	outstanding atomic.Uint64 // the generation, or 0
	begun       bool          // the fields below are set; guarded, as they are, by the connection's mutex
	region      *lane.Region  // what a READ may read
	addr        uintptr
	until       [lane.MaxDomains]uint64 // by domain: parts that must be visible
}

// flushes is a receiver's account of what is visible to the GPU.
//
// At most one flush of a domain is in progress at a time. It covers all parts that had arrived when it began, for however
// many requests; so requests that come meanwhile share the next one.
type flushes struct {
	requests []Flush // made when GPU memory is registered first

	freeMu sync.Mutex // a leaf lock
	free   []uint16   // indices of requests

	// By domain; guarded by the connection's mutex.
	arrived [lane.MaxDomains]uint64       // parts that have arrived in GPU memory
	begun   [lane.MaxDomains]uint64       // of those, parts that the last flush covers
	visible [lane.MaxDomains]uint64       // of those, parts that are visible
	reading [lane.MaxDomains]*lane.Region // what the flush in progress reads; nil: there is none
}

// prepare makes the requests.
func (f *flushes) prepare(r *Receiver) {
	if f.requests != nil {
		return
	}
	f.requests = make([]Flush, lane.Window)
	for i := range f.requests {
		f.requests[i].r, f.requests[i].index = r, lane.Window+i
		f.free = append(f.free, uint16(i))
	}
}

// take returns a free request, or nil.
func (f *flushes) take() *Flush {
	f.freeMu.Lock()
	defer f.freeMu.Unlock()
	if len(f.free) == 0 {
		return nil
	}
	i := f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	return &f.requests[i]
}

// giveBack frees a request.
func (f *flushes) giveBack(q *Flush) {
	f.freeMu.Lock()
	f.free = append(f.free, uint16(q.index-lane.Window))
	f.freeMu.Unlock()
}

// Iflush begins to make all data that has arrived in a GPU's memory visible to it. b is a buffer there. Iflush returns nil
// if there is nothing to do: all is visible, or b is in host memory or empty. Other than receives, flushes go on after the
// peer has closed the connection.
func (r *Receiver) Iflush(b Buffer) (*Flush, error) {
	switch {
	case b.Size == 0, b.Region != nil && b.Region.Kind != lane.GPUMemory:
		return nil, nil
	case b.Size < 0 || !b.Region.Covers(b.Addr, b.Size):
		return nil, fmt.Errorf("%w: %v: flush of %d bytes at %#x is outside the registered memory", fault.ErrUsage, r, b.Size, b.Addr)
	}
	locked := r.TryLock() // otherwise Test begins the flush
	if locked {
		defer r.Unlock()
		if r.flushes.visible == r.flushes.arrived {
			return nil, nil
		}
	}
	f := r.flushes.take()
	if f == nil {
		return nil, fmt.Errorf("%w: %v: more than %d flushes are outstanding", fault.ErrUsage, r, lane.Window)
	}
	f.region, f.addr = b.Region, b.Addr
	f.generation++
	f.outstanding.Store(f.generation)
	if locked {
		if _, err := r.flushed(f); err != nil {
			r.endFlush(f)
			return nil, err
		}
	}
	return f, nil
}

// Flushing returns the flush of that index, or nil.
func (r *Receiver) Flushing(index int) *Flush {
	if i := index - lane.Window; i >= 0 && i < len(r.flushes.requests) {
		return &r.flushes.requests[i]
	}
	return nil
}

// Index returns a number that no other outstanding request or flush of the connection has, from lane.Window.
func (f *Flush) Index() int { return f.index }

// Generation returns the number of the flush's present use.
func (f *Flush) Generation() uint64 { return f.generation }

// Outstanding returns the generation of the outstanding flush, or 0. It may be called from any goroutine.
func (f *Flush) Outstanding() uint64 { return f.outstanding.Load() }

// Trace returns nil: a flush moves no data over lanes.
func (f *Flush) Trace() *Trace { return nil }

// Test reports whether the flush is done. A flush has no sizes. Once Test has returned true, or an error, the flush must not
// be used again.
func (f *Flush) Test(*Sizes) (done bool, err error) {
	r := f.r
	if !r.TryLock() {
		return false, nil
	}
	defer r.Unlock()
	if f.outstanding.Load() == 0 {
		return false, fmt.Errorf("%w: %v: flush %d is not outstanding", fault.ErrUsage, r, f.index)
	}
	if done, err = r.flushed(f); done || err != nil {
		r.endFlush(f)
	}
	return done, err
}

// endFlush frees a flush.
//
// Preconditions: r is locked.
func (r *Receiver) endFlush(f *Flush) {
	if f.begun {
		f.begun = false
		f.region.InUse--
	}
	f.region = nil
	f.outstanding.Store(0)
	r.flushes.giveBack(f)
}

// flushed reports whether all that had arrived when f began is visible, and begins what is missing.
//
// Preconditions: r is locked.
func (r *Receiver) flushed(f *Flush) (bool, error) {
	if !f.begun {
		if !r.hasRegion(f.region) {
			return false, fmt.Errorf("%w: %v: flush of memory at %#x, which is not registered any more", fault.ErrUsage, r, f.addr)
		}
		f.begun, f.until = true, r.flushes.arrived
		f.region.InUse++
	}
	all := true
	for place := range f.until {
		if r.flushes.visible[place] >= f.until[place] {
			continue
		}
		done, err := r.flushDomain(place, f)
		if err != nil {
			return false, err
		}
		all = all && done
	}
	return all, nil
}

// flushDomain moves the flush of a domain on, and reports whether what f waits for there is visible.
//
// Preconditions: r is locked.
func (r *Receiver) flushDomain(place int, f *Flush) (bool, error) {
	fs := &r.flushes
	if place >= len(r.domains) {
		return false, fmt.Errorf("%w: %v: flush on a closed connection", fault.ErrUsage, r)
	}
	d := r.domains[place]
	if fs.reading[place] != nil {
		ended, err := d.Flushed()
		if !ended {
			return false, nil
		}
		r.endReading(place)
		if err != nil {
			return r.flushOtherwise(place, err)
		}
		if fs.visible[place] = fs.begun[place]; fs.visible[place] >= f.until[place] {
			return true, nil
		}
	}
	begun, err := d.StartFlush(f.region, f.addr)
	if err != nil {
		return r.flushOtherwise(place, err)
	}
	if begun {
		fs.reading[place], fs.begun[place] = f.region, fs.arrived[place]
		f.region.InUse++
	}
	return false, nil
}

// endReading notes that no READ of a flush is outstanding in a domain.
//
// Preconditions: r is locked.
func (r *Receiver) endReading(place int) {
	if g := r.flushes.reading[place]; g != nil {
		g.InUse--
		r.flushes.reading[place] = nil
	}
}

// flushOtherwise has CUDA make what has arrived visible, because a device cannot, as without a link. If CUDA cannot either,
// the connection fails: nobody knows what the GPU would see.
//
// Preconditions: r is locked.
func (r *Receiver) flushOtherwise(place int, why error) (bool, error) {
	if flush := r.env.FlushGPU; flush != nil {
		err := flush()
		if err == nil {
			r.flushes.visible[place] = r.flushes.arrived[place]
			return true, nil
		}
		why = fmt.Errorf("%w; and CUDA could not either: %w", why, err)
	}
	err := fmt.Errorf("%w: %v: received data cannot be made visible to the GPU: %w", fault.ErrDevice, r, why)
	r.Fail(err)
	return false, err
}

// noteGPUArrival counts a part that has arrived in GPU memory, for later flushes.
func (fs *flushes) noteGPUArrival(l *lane.Lane) { fs.arrived[l.Domain]++ }

// noteGPUPuts notes that puts into GPU memory may have arrived in each of so many domains, for later flushes.
func (fs *flushes) noteGPUPuts(domains int) {
	for i := range domains {
		fs.arrived[i]++
	}
}
