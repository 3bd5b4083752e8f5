package comm

import (
	"fmt"
	"time"

	"ncclmesh/comm/fifo"
	"ncclmesh/guard"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/onesided"
	"ncclmesh/transport/stage"
)

// A proxy executes the triggers of the FIFOs of all connections, in one goroutine. A FIFO that waits for a flush, or for a peer that
// has too many requests, delays no other FIFO.
type proxy struct {
	comm  *Comm
	state stage.Stage[proxyState]
	done  chan struct{} // closed when the goroutine has ended
}

// proxyState is the state of a proxy. It never goes back.
//
//	running ──► draining ──► ending
//
// A proxy that is not to execute the rest goes from running to ending.
type proxyState uint32

const (
	proxyRunning  proxyState = 0
	proxyDraining proxyState = 1 // it ends when all FIFOs are empty
	proxyEnding   proxyState = 2 // it ends at once
)

func (s proxyState) String() string { return [...]string{"running", "draining", "ending"}[s] }

// serving is a proxy's state of one connection. It belongs to the proxy's goroutine.
type serving struct {
	trigger  fifo.Trigger
	busy     bool        // the trigger is being executed:
	rest     fifo.Kind   // what is left of it
	flush    onesided.Op // the flush that it waits for; 0: it does not
	failed   error       // the first error: nothing more is executed
	skipping bool        // the error was published
}

// LaunchProxies starts to execute the triggers that are pushed to the FIFOs of the connections, those of later calls of Setup too.
func (c *Comm) LaunchProxies() error {
	if err := c.lockCollective(); err != nil {
		return err
	}
	defer c.collective.Unlock()
	if c.proxy.Load() != nil {
		return fmt.Errorf("%w: the proxies run already", fault.ErrUsage)
	}
	p := &proxy{comm: c, done: make(chan struct{})}
	c.proxy.Store(p)
	c.spawn(p.run)
	return nil
}

// StopProxies executes what was pushed before, waits until all ranks have called it, and stops the proxies.
func (c *Comm) StopProxies() error {
	if err := c.lockCollective(); err != nil {
		return err
	}
	defer c.collective.Unlock()
	p := c.proxy.Load()
	if p == nil {
		return fmt.Errorf("%w: no proxies run: launch them first", fault.ErrUsage)
	}
	p.state.Enter(proxyDraining)
	err := c.await(c.process.bootstrapTimeout(), func() string { return "not all triggers were executed" }, p.ended)
	if err == nil {
		err = c.member.Barrier(c.process.bootstrapTimeout())
	}
	c.endProxy()
	return err
}

// endProxy stops the proxy, if there is one.
//
// Preconditions: c.collective is locked.
func (c *Comm) endProxy() {
	if p := c.proxy.Swap(nil); p != nil {
		p.state.Enter(proxyEnding)
		<-p.done
	}
}

// ended reports whether the goroutine has ended.
func (p *proxy) ended() (bool, error) {
	select {
	case <-p.done:
		return true, nil
	default:
		return false, nil
	}
}

// How long a proxy pauses between two looks at the FIFOs, at most.
const (
	longestProxyPause = 100 * time.Microsecond
	quietProxyPause   = time.Millisecond // when no trigger has come for quietAfter
)

// run serves all FIFOs until the proxy is to end. After a panic it goes on, with the connection that it served failed.
func (p *proxy) run() {
	defer close(p.done)
	for {
		var at *Connection
		err := guard.Do(func() error { p.serveAll(&at); return nil })
		if err == nil {
			return
		}
		p.comm.caught(err.(*guard.Panic))
		if at == nil {
			return
		}
		at.serving.failed = fmt.Errorf("%w: %w", fault.ErrInternal, err)
	}
}

// serveAll serves all FIFOs until the proxy is to end. at points to the connection that it serves.
func (p *proxy) serveAll(at **Connection) {
	pace, moved := p.comm.newPace(longestProxyPause), time.Now()
	for p.state.At() < proxyEnding {
		found, waits := false, false
		for _, x := range *p.comm.connections.Load() {
			*at = x
			f, w := x.serve()
			found, waits = found || f, waits || w
		}
		*at = nil
		if found || waits {
			p.comm.space.Progress()
		}
		switch {
		case found:
			pace.Reset()
			pace.Max, moved = longestProxyPause, time.Now()
		case !waits && p.state.At() == proxyDraining:
			return
		case pace.Max < quietProxyPause && time.Since(moved) > quietAfter:
			pace.Max = quietProxyPause
		}
		pace.Wait()
	}
}

// serve executes a trigger of the connection's FIFO, if there is one. found: it has made a request, or completed the trigger; waits: a
// trigger is there, and not completed.
func (x *Connection) serve() (found, waits bool) {
	s := &x.serving
	if !s.busy {
		t, ok, err := x.fifo.Poll()
		if !ok {
			return false, false
		}
		s.trigger, s.busy, s.rest, s.flush = t, true, t.Kind, 0
		if err != nil && s.failed == nil {
			s.failed = fmt.Errorf("%w: %w", ErrArgument, err)
		}
	}
	before := s.rest
	done, err := x.execute()
	if err != nil {
		s.failed = err
	}
	if s.failed != nil {
		x.failFIFO()
		done = true
	}
	if done {
		s.busy = false
		x.fifo.Executed()
	}
	return done || s.rest != before, !done
}

// execute goes on with the trigger, and reports whether it was executed.
func (x *Connection) execute() (done bool, err error) {
	s := &x.serving
	if s.failed != nil {
		return true, nil
	}
	t := &s.trigger
	if s.rest&(fifo.Put|fifo.Signal) != 0 {
		if op, err := x.request(t); op == 0 || err != nil {
			return false, err
		}
		s.rest &^= fifo.Put | fifo.Signal
		x.comm.busy.Store(true)
	}
	if s.rest&fifo.Flush == 0 {
		return true, nil
	}
	if s.flush == 0 {
		if s.flush, err = x.peer.Flush(); s.flush == 0 || err != nil {
			return false, err
		}
	}
	return x.peer.Done(s.flush)
}

// request makes the put and the signal of a trigger. The operation is 0 if it has to be made again.
func (x *Connection) request(t *fifo.Trigger) (op onesided.Op, err error) {
	if t.Kind&fifo.Put != 0 {
		if err := x.checkPut(t.Dst, t.Src, t.Size); err != nil {
			return 0, err
		}
	}
	if t.Kind&fifo.Signal == 0 {
		return x.put(t.Dst, t.Src, t.Size)
	}
	n := x.skipped.Swap(0)
	if t.Kind&fifo.Put == 0 {
		op, err = x.peer.Signal(x.signal(n + 1))
	} else {
		op, err = x.putSignal(t.Dst, t.Src, t.Size, n+1)
	}
	if op == 0 {
		x.skipped.Add(n)
	}
	return op, err
}

// failFIFO publishes the first error of the FIFO.
func (x *Connection) failFIFO() {
	s := &x.serving
	if s.skipping {
		return
	}
	s.skipping = true
	x.comm.process.log.Warn(fmt.Sprintf("%v: a trigger of the FIFO failed, and no later one is executed: %v", x, s.failed))
	x.fifo.Fail(uint64(ResultOf(s.failed)))
}
