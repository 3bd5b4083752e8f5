package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/transport/forkfd"
	"ncclmesh/transport/limit"
)

// dial is an attempt to make a session, which everybody waits for who wants the same process.
type dial struct {
	done chan struct{}
	s    *Session // set before done is closed
	err  error
	own  bool // err concerns only the one who tried: its listen id, its context
}

// Dial returns the session with the process that made the handle, new or old. It gives up when ctx ends, when every
// address that answers refuses, or when none has answered for LaneWait; the error is then a *PeerError.
func (e *Endpoint) Dial(ctx context.Context, h handshake.Handle) (*Session, error) {
	for {
		e.mu.Lock()
		if e.closing {
			e.mu.Unlock()
			return nil, fmt.Errorf("control: dial: %w", net.ErrClosed)
		}
		if s := e.dialled[h.Process]; s != nil && s.Alive() {
			e.mu.Unlock()
			return s, nil
		}
		d := e.dials[h.Process]
		if d == nil {
			d = &dial{done: make(chan struct{})}
			e.dials[h.Process] = d
			e.wg.Add(1)
			e.mu.Unlock()
			defer e.wg.Done()
			e.lead(ctx, h, d)
			return d.s, d.err
		}
		e.mu.Unlock()
		select {
		case <-d.done:
			if !d.own {
				return d.s, d.err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("control: dial: %w", ctx.Err())
		}
	}
}

// lead makes the attempt d.
func (e *Endpoint) lead(ctx context.Context, h handshake.Handle, d *dial) {
	d.s, d.err = e.newDialled(ctx, h)
	if d.err != nil {
		var peer *PeerError
		d.own = ctx.Err() != nil || errors.As(d.err, &peer) && slices.ContainsFunc(peer.Tries, func(t Try) bool { return refusedListen(t.Err) })
	}
	e.mu.Lock()
	delete(e.dials, h.Process)
	e.mu.Unlock()
	close(d.done)
}

func refusedListen(err error) bool {
	var reject *handshake.RejectError
	if errors.As(err, &reject) {
		switch reject.Code {
		case handshake.RejectListen, handshake.RejectClosed, handshake.RejectSecret:
			return true
		}
	}
	return errors.Is(err, handshake.ErrMAC)
}

// newDialled makes a new session.
func (e *Endpoint) newDialled(caller context.Context, h handshake.Handle) (*Session, error) {
	ctx, cancel := context.WithTimeout(caller, e.scaled(e.cfg.LaneWait))
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()

	sr := &search{
		process: h.Process,
		stagger: e.scaled(dialStagger),
		hello: func(x *handshake.Exchange) ([]byte, error) {
			return x.SayHello(h.Secret[:], &handshake.Hello{
				Process: e.cfg.Process, Node: e.cfg.Node, Hostname: e.cfg.Hostname,
				Port: e.port, Addrs: e.addrs,
				Listen: h.Listen, Ports: e.ports(),
			})
		},
	}
	for _, a := range h.Addrs {
		sr.addrs = append(sr.addrs, address{netip.AddrPortFrom(a.Unmap(), h.Port), false})
	}
	var last []Try
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		won, tries := e.round(ctx, sr)
		if won != nil {
			return e.begin(h, won)
		}
		if last == nil || ctx.Err() == nil {
			last = tries
		}
		final := slices.ContainsFunc(tries, func(t Try) bool { return t.final(false) })
		hope := !final && silent(tries)
		if !hope || !sleep(ctx, e.scaled(pause)) {
			if own := ownFault(last); own != nil && hope && caller.Err() == nil {
				return nil, fmt.Errorf("control: node %s cannot dial process %.8v: %w", e.cfg.Hostname, h.Process, own)
			}
			return nil, fmt.Errorf("control: %w", &PeerError{
				Local: e.cfg.Hostname, Process: h.Process, Tries: last, Cause: caller.Err(), Dead: !hope,
			})
		}
	}
}

// silent reports whether some address may still answer. One to which there is no route from here says nothing about a
// process that all others refuse.
func silent(tries []Try) bool {
	refused := slices.ContainsFunc(tries, func(t Try) bool { return answered(t.Err) })
	return slices.ContainsFunc(tries, func(t Try) bool {
		return !answered(t.Err) && (!refused || !errors.Is(t.Err, syscall.ENETUNREACH))
	})
}

// begin turns a completed exchange into a session.
func (e *Endpoint) begin(h handshake.Handle, won *answer) (*Session, error) {
	w := won.welcome
	s := e.newSession(won.keys, true, Peer{Process: w.Process, Node: w.Node, Hostname: w.Hostname, Ports: w.Ports})
	for _, a := range h.Addrs {
		s.know(a, h.Port, false)
	}
	s.know(won.addr.Addr(), won.addr.Port(), true)
	if err := e.add(s); err != nil {
		won.link.close()
		return nil, fmt.Errorf("control: dial: %w", err)
	}
	e.count.add(func(st *Stats) { st.Dialled++ })
	e.log.Debug("control: dialled a session", "session", s.id, "peer", s.peer.Hostname, "remote", won.link.remote)
	s.attach(won.link, w.Received)
	return s, nil
}

// search is one way to find a process.
type search struct {
	process handshake.ProcessID
	addrs   []address
	stagger time.Duration
	known   bool // the process has been seen; see Try.final
	hello   func(*handshake.Exchange) ([]byte, error)
	failed  func() // called when a Hello was sent in vain; may be nil
}

// answer is what dialling one address brought.
type answer struct {
	addr address
	err  error
	conn *net.TCPConn
	in   *bufio.Reader
	x    *handshake.Exchange
	mesh bool

	// once the exchange is complete
	welcome *handshake.Welcome
	keys    handshake.Keys
	link    *link
}

// round tries every address once, in parallel: it dials them all, and says Hello on one after the other of those that
// answer, until a Welcome makes the link.
func (e *Endpoint) round(ctx context.Context, sr *search) (won *answer, tries []Try) {
	calls, cancel := context.WithTimeout(ctx, e.scaled(answerWait)+time.Duration(len(sr.addrs))*sr.stagger)
	answers := make(chan *answer)
	stagger, started, pending := sr.stagger, 0, 0
	next := time.NewTimer(0)         // dials the next address
	hold := time.NewTimer(time.Hour) // set once an answer is held
	dead := time.NewTimer(time.Hour) // set once the process is gone, unless another address knows better
	defer next.Stop()
	defer hold.Stop()
	defer dead.Stop()
	defer func() {
		cancel()
		for ; pending > 0; pending-- {
			if a := <-answers; a.conn != nil {
				_ = forkfd.Close(a.conn)
			}
		}
	}()
	fail := func(a *answer) {
		if a.conn != nil {
			_ = forkfd.Close(a.conn)
		}
		t := Try{a.addr.AddrPort, a.err, a.addr.sure}
		tries = append(tries, t)
		if t.final(sr.known) {
			dead.Reset(e.scaled(deadGrace))
			stagger = 0 // the others get the whole of it
			next.Reset(0)
		}
	}
	var ready []*answer // answered, to be tried now
	var held []*answer  // answered over the mesh, while another address may still answer off it
	defer func() {
		for _, a := range append(ready, held...) {
			_ = forkfd.Close(a.conn)
		}
	}()
	for {
		for len(ready) > 0 {
			a := ready[0]
			ready = ready[1:]
			if e.converse(ctx, sr, a) {
				return a, nil
			}
			fail(a)
		}
		if pending == 0 && started == len(sr.addrs) {
			if len(held) == 0 {
				return nil, tries
			}
			ready, held = held, nil
			continue
		}
		select {
		case <-next.C:
			if started < len(sr.addrs) {
				addr := sr.addrs[started]
				started++
				pending++
				go guard.Run(func() { answers <- e.call(calls, sr.process, addr) }, func(p *guard.Panic) {
					e.caught(p)
					answers <- &answer{addr: addr, err: p}
				})
				next.Reset(stagger)
			}
		case a := <-answers:
			pending--
			switch {
			case a.err != nil:
				fail(a)
				next.Reset(0)
			case a.mesh:
				if len(held) == 0 {
					hold.Reset(e.scaled(meshHold))
					stagger = 0
					next.Reset(0)
				}
				held = append(held, a)
			default:
				ready = append(ready, a)
			}
		case <-hold.C:
			ready, held = held, nil
		case <-dead.C:
			return nil, tries
		}
	}
}

// call dials one address and reads what its listener says first.
func (e *Endpoint) call(ctx context.Context, process handshake.ProcessID, addr address) *answer {
	a := &answer{addr: addr}
	if a.conn, a.err = connect(ctx, addr.AddrPort); a.err != nil {
		a.err = limit.Own(a.err)
		return a
	}
	defer onDone(ctx, a.conn)()
	a.in = bufio.NewReader(a.conn)
	raw, err := handshake.ReadChallenge(a.in)
	if err == nil {
		a.x, err = handshake.NewDialler(process, raw)
	}
	if err != nil {
		var version *handshake.VersionError
		if errors.As(err, &version) {
			_, _ = a.conn.Write(handshake.Reject(handshake.RejectVersion)) // for its log to name this build
		}
		a.err = cause(ctx, err)
		return a
	}
	a.mesh = e.cfg.Mesh != nil && e.cfg.Mesh(unmap(a.conn.LocalAddr()).Addr())
	return a
}

// converse completes the exchange on an address that has answered.
func (e *Endpoint) converse(ctx context.Context, sr *search, a *answer) bool {
	a.err = func() error {
		hello, err := sr.hello(a.x)
		if err != nil {
			return err
		}
		_ = a.conn.SetDeadline(time.Now().Add(e.scaled(answerWait)))
		stop := onDone(ctx, a.conn)
		defer stop()
		if _, err := a.conn.Write(hello); err != nil {
			return cause(ctx, err)
		}
		raw, err := handshake.ReadWelcome(a.in)
		if err != nil {
			return cause(ctx, err)
		}
		if a.welcome, a.keys, err = a.x.HearWelcome(raw); err != nil {
			return err
		}
		if a.welcome.Process != sr.process {
			return handshake.ErrOtherProcess
		}
		return nil
	}()
	if a.err != nil {
		if sr.failed != nil {
			sr.failed()
		}
		return false
	}
	a.link = newLink(a.conn, a.in, a.keys, nil)
	a.link.quiet = true
	return true
}

// onDone interrupts the connection's I/O when the context ends, until the function it returns is called.
func onDone(ctx context.Context, c *net.TCPConn) (stop func()) {
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = c.SetDeadline(time.Unix(1, 0))
	})
	return func() {
		if !cancel() {
			<-done
		}
	}
}

// cause returns why the context ended, if that is what an I/O error comes from.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
