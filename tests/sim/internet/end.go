package internet

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/sim/bus"
)

// state is how far an end of a stream has come.
type state int

const (
	stateCalling   state = iota // it has called, and waits for an answer
	stateAnswering              // it was called, and has answered
	stateOpen                   // both ends know of one another; either may have finished
	stateOver                   // both have finished; the port is kept for a while
	stateGone                   // the kernel has forgotten it
)

func (s state) String() string {
	return [...]string{"calling", "answering", "open", "over", "gone"}[s]
}

// An end is one end of a stream: what a kernel keeps of it. All of it is guarded by the internet's mutex.
type end struct {
	host          *Host
	process       *Process // whose it is; nil once nobody has a descriptor of it
	name          string   // in the trace
	source        *bus.Source
	binding       *binding
	local, remote netip.AddrPort
	on            *Interface // it takes only what came by this; nil: any
	hops, minHops int
	dialled       bool
	answers       int       // ends that have answered its call
	listener      *listener // that it waits at to be accepted
	state         state
	peer          *end
	refs          int  // descriptors
	owned         bool // there was one
	abort         bool // to be reset when the last descriptor is closed
	closing       bool // that is known
	errno         unix.Errno
	soft          unix.Errno    // of the way to the other end; what a time-out says instead
	stepping      bool          // there is going to be a step
	order         time.Duration // when what was sent last arrives
	bites         *bus.Source   // of a stream: how much it takes
	began         time.Duration // when it called or answered first

	readable, writable *sync.Cond

	sender
	receiver
	patience
	finish alarm
}

// newEnd makes an end, with buffers of a size that is drawn, unless [Internet.Even] says it.
func (h *Host) newEnd(name string, source *bus.Source) *end {
	e := &end{host: h, name: name, source: source, hops: 64, began: h.net.bus.Now(), readable: h.net.newCond(), writable: h.net.newCond()}
	own, other := source.LogUniform(smallest, largest), source.LogUniform(smallest, largest)
	if b := h.net.buffer; b > 0 {
		own, other = b, b
	}
	e.sender.begin(own)
	e.receiver.begin(other)
	return e
}

// The smallest and the largest buffer of an end, in bytes. A kernel's grow while they are used.
const (
	smallest = 64 << 10
	largest  = 2 << 20
)

func (e *end) String() string {
	return fmt.Sprintf("%s: %v, %d bytes not read, %d not acknowledged, %d tries, error %v", e.name, e.state, len(e.in), len(e.out), e.tries, e.errno)
}

func (e *end) net() *Internet { return e.host.net }

func (e *end) now() time.Duration { return e.host.net.bus.Now() }

// register enters the end among those that segments are for.
func (e *end) register() {
	k := pair{bare(e.local), bare(e.remote)}
	e.host.pairs[k] = append(e.host.pairs[k], e)
}

// forget takes the end off the host's tables. What has come can still be read.
func (e *end) forget() {
	if e.state == stateGone {
		return
	}
	e.state = stateGone
	k := pair{bare(e.local), bare(e.remote)}
	rest := slices.DeleteFunc(slices.Clone(e.host.pairs[k]), func(o *end) bool { return o == e })
	if len(rest) == 0 {
		delete(e.host.pairs, k)
	} else {
		e.host.pairs[k] = rest
	}
	if e.binding != nil {
		e.binding.giveBack(e.host.ports)
		e.binding = nil
	}
	if e.listener != nil {
		e.listener.drop(e)
	}
	e.resend.stop()
	e.keep.stop()
	e.finish.stop()
	e.left = len(e.out)
	e.out, e.flights, e.held = nil, nil, nil
	e.wake()
}

// vanish is forget with all that has come.
func (e *end) vanish() {
	e.forget()
	e.in = nil
}

// wake wakes those who wait at the end.
func (e *end) wake() {
	e.readable.Broadcast()
	e.writable.Broadcast()
	e.process.tell()
}

// broken ends the stream with an error.
func (e *end) broken(errno unix.Errno) {
	e.errno = errno
	e.forget()
}

// resetErrno is what a program hears of a reset.
func resetErrno(e *end) unix.Errno {
	switch {
	case e.state == stateCalling:
		return unix.ECONNREFUSED
	case e.ended && !e.fin:
		return unix.EPIPE
	}
	return unix.ECONNRESET
}

// takeError returns the error, once.
func (e *end) takeError() unix.Errno {
	errno := e.errno
	e.errno = 0
	return errno
}

// given makes the end a process's.
func (e *end) given(p *Process) {
	e.refs, e.owned, e.process = 1, true, p
	p.ends = append(p.ends, e)
}

// release takes one descriptor away. With the last one the stream is finished, or reset where what has come was not read.
func (e *end) release() {
	if e.refs--; e.refs > 0 {
		return
	}
	p := e.process
	p.ends = slices.DeleteFunc(p.ends, func(o *end) bool { return o == e })
	e.process = nil
	switch e.state {
	case stateCalling:
		e.forget()
	case stateOpen:
		e.wantStep()
	}
}

// wantStep asks for a step at this instant: what a program has done takes effect.
func (e *end) wantStep() {
	if !e.stepping {
		e.stepping = true
		e.net().after(e.source, 0, e.name, e.step)
	}
}

// step sends what there is to send.
func (e *end) step() {
	e.stepping = false
	if e.state != stateOpen {
		return
	}
	if e.owned && e.refs == 0 && !e.closing {
		e.closing = true
		if e.abort || len(e.in) > 0 {
			e.reset()
			return
		}
		e.fin = true
		e.outlive()
	}
	if e.windowDue {
		e.acknowledge()
	}
	e.transmit()
}

// reset tells the other end that the stream is no more, and forgets it.
func (e *end) reset() {
	_ = e.emit(&segment{rst: true})
	e.forget()
}

// finWait is how long a finished end without a process waits for the other to finish, and how long the ports of a stream are
// kept after its end: net.ipv4.tcp_fin_timeout, and TCP_TIMEWAIT_LEN.
const finWait = time.Minute

// settle looks whether the stream is over.
func (e *end) settle() {
	switch {
	case e.state != stateOpen || !e.finAcked:
	case e.ended && e.last:
		e.forget() // the other end keeps the ports
	case e.ended:
		e.state = stateOver
		e.finish.set(e, finWait, "forget", e.forget)
	case e.closing:
		e.outlive()
	}
}

// outlive lets an end without a process wait for the other end for a while, once its own is acknowledged.
func (e *end) outlive() {
	if e.finAcked && !e.ended {
		e.finish.set(e, finWait, "forget", e.forget)
	}
}

// An alarm calls something once. Setting it to later does not touch the event that there is.
type alarm struct {
	event   *bus.Event
	at, due time.Duration // of the event, and of the call
	f       func()        // nil: nothing is to be called
}

// set has f called in d; what was set before is not.
func (a *alarm) set(e *end, d time.Duration, what string, f func()) {
	a.due, a.f = e.now()+d, f
	if a.event != nil {
		if a.at <= a.due {
			return
		}
		a.event.Stop()
	}
	a.wait(e, e.name+" "+what)
}

func (a *alarm) wait(e *end, what string) {
	a.at = a.due
	a.event = e.net().after(e.source, a.due-e.now(), what, func() {
		a.event = nil
		switch f := a.f; {
		case f == nil:
		case e.now() < a.due:
			a.wait(e, what)
		default:
			a.f = nil
			f()
		}
	})
}

func (a *alarm) stop() {
	a.f = nil
	if a.event != nil {
		a.event.Stop()
		a.event = nil
	}
}
