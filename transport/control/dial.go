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
	"ncclmesh/transport/clock"
	"ncclmesh/transport/limit"
	"ncclmesh/transport/sock"
)

// target is the process to dial: by a handle, or as the neighbour at the other end of the cable at netdev.
type target struct {
	process handshake.ProcessID
	netdev  string // "" if dialled by a handle
}

// dialSpec is what is needed to dial a session.
type dialSpec struct {
	target
	secret handshake.Secret
	listen uint32
	addrs  []netip.AddrPort
}

// attempt is an attempt to dial a session. All callers that want the same session wait for it.
type attempt struct {
	done chan struct{}
	s    *Session // set before done is closed
	err  error
	own  bool // err concerns only the caller that made the attempt: its listen ID or its context
}

// Dial returns the session with the process that made the handle, an existing or a new one. It fails if ctx ends, if
// every address that answers refuses, or if none has answered for LaneWait; the error is then a *PeerError. It is a
// *SettingsError if settings of the two processes are incompatible.
func (e *Endpoint) Dial(ctx context.Context, h handshake.Handle) (*Session, error) {
	in := &dialSpec{target: target{process: h.Process}, secret: h.Secret, listen: h.Listen}
	for _, a := range h.Addrs {
		in.addrs = append(in.addrs, netip.AddrPortFrom(a.Unmap(), h.Port))
	}
	return e.dial(ctx, in)
}

func (e *Endpoint) dial(ctx context.Context, in *dialSpec) (*Session, error) {
	for {
		e.mu.Lock()
		if e.closing {
			e.mu.Unlock()
			return nil, fmt.Errorf("control: dial: %w", net.ErrClosed)
		}
		if s := e.dialled[in.target]; s != nil && s.Alive() {
			e.mu.Unlock()
			return s, nil
		}
		d := e.dials[in.target]
		if d == nil {
			d = &attempt{done: make(chan struct{})}
			e.dials[in.target] = d
			e.wg.Add(1)
			e.mu.Unlock()
			defer e.wg.Done()
			e.runAttempt(ctx, in, d)
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

// runAttempt makes the attempt d, and publishes its result.
func (e *Endpoint) runAttempt(ctx context.Context, in *dialSpec, d *attempt) {
	d.s, d.err = e.newDialled(ctx, in)
	if d.err != nil {
		var peer *PeerError
		d.own = ctx.Err() != nil || errors.As(d.err, &peer) && slices.ContainsFunc(peer.Tries, func(t Try) bool { return refusedListen(t.Err) })
	}
	e.mu.Lock()
	delete(e.dials, in.target)
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

// newDialled dials a new session, until LaneWait has passed or the caller's context ends.
func (e *Endpoint) newDialled(caller context.Context, in *dialSpec) (*Session, error) {
	ctx, cancel := e.cfg.Clock.WithTimeout(caller, e.cfg.Clock.Scaled(e.cfg.LaneWait))
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()

	sr := &search{
		target:  in.target,
		stagger: e.cfg.Clock.Scaled(dialStagger),
		hello: func(x *handshake.Exchange) ([]byte, error) {
			return x.SayHello(in.secret[:], &handshake.Hello{
				Process: e.cfg.Process, Node: e.cfg.Node, Hostname: e.cfg.Hostname,
				Port: e.port, Addrs: e.addrsFor(in.netdev),
				Listen: in.listen, Ports: e.ports(), Settings: e.settingsFor(in.netdev),
			})
		},
	}
	for _, a := range in.addrs {
		sr.addrs = append(sr.addrs, address{a, false})
	}
	var last []Try
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		won, tries := e.round(ctx, sr)
		if won != nil {
			return e.startSession(in, won)
		}
		if last == nil || ctx.Err() == nil {
			last = tries
		}
		final := slices.ContainsFunc(tries, func(t Try) bool { return t.final(false) })
		hope := !final && silent(tries)
		if !hope || !e.cfg.Clock.Pause(ctx, e.cfg.Clock.Scaled(pause)) {
			gaveUp := caller.Err() // a caller's deadline is as the end of LaneWait
			if errors.Is(gaveUp, context.DeadlineExceeded) {
				gaveUp = nil
			}
			if own := ownFault(last); own != nil && hope && gaveUp == nil {
				return nil, fmt.Errorf("control: node %s cannot dial process %.8v: %w", e.cfg.Hostname, in.process, own)
			}
			return nil, fmt.Errorf("control: %w", &PeerError{
				Local: e.cfg.Hostname, Process: in.process, Netdev: in.netdev, Tries: last, Cause: gaveUp, Dead: !hope,
			})
		}
	}
}

// silent reports whether some address may still answer. An address without a route does not count if all others have
// refused.
func silent(tries []Try) bool {
	refused := slices.ContainsFunc(tries, func(t Try) bool { return answered(t.Err) })
	return slices.ContainsFunc(tries, func(t Try) bool {
		return !answered(t.Err) && (!refused || !errors.Is(t.Err, syscall.ENETUNREACH))
	})
}

// startSession makes a session of a completed handshake. The error is a *SettingsError if the settings of the two
// processes are incompatible.
func (e *Endpoint) startSession(in *dialSpec, won *dialResult) (*Session, error) {
	w := won.welcome
	peer := Peer{Process: w.Process, Node: w.Node, Hostname: w.Hostname, Ports: w.Ports, Settings: w.Settings}
	if err := e.agree(&peer, in.netdev, won.conn); err != nil {
		won.link.close()
		return nil, fmt.Errorf("control: %w", err)
	}
	s := e.newSession(won.keys, true, in.netdev, peer)
	for _, a := range in.addrs {
		s.addAddress(a.Addr(), a.Port(), false)
	}
	s.addAddress(won.addr.Addr(), won.addr.Port(), true)
	if err := e.add(s); err != nil {
		won.link.close()
		return nil, fmt.Errorf("control: dial: %w", err)
	}
	e.count.add(func(st *Stats) { st.Dialled++ })
	e.log.Debug("control: dialled a session", "session", s.id, "peer", s.peer.Hostname, "remote", won.link.remote)
	s.attach(won.link, w.Received)
	return s, nil
}

// search describes how to find a process.
type search struct {
	target
	addrs   []address
	stagger time.Duration
	known   bool // the process was seen before; see Try.final
	hello   func(*handshake.Exchange) ([]byte, error)
	failed  func() // called after a Hello got no Welcome; may be nil
}

// dialResult is the result of dialling one address.
type dialResult struct {
	addr address
	err  error
	conn sock.Conn
	in   *bufio.Reader
	x    *handshake.Exchange
	mesh bool

	// set once the handshake is complete
	welcome *handshake.Welcome
	keys    handshake.Keys
	link    *link
}

// round dials every address once, in parallel. It sends a Hello to one after the other of those that answer, until a
// Welcome completes the link.
func (e *Endpoint) round(ctx context.Context, sr *search) (won *dialResult, tries []Try) {
	calls, cancel := e.cfg.Clock.WithTimeout(ctx, e.cfg.Clock.Scaled(replyTimeout)+time.Duration(len(sr.addrs))*sr.stagger)
	r := &round{
		e: e, search: sr, left: sr.addrs, stagger: sr.stagger, answers: make(chan *dialResult),
		next: e.cfg.Clock.NewTimer(0), hold: e.cfg.Clock.NewTimer(time.Hour), dead: e.cfg.Clock.NewTimer(time.Hour),
	}
	defer r.close()
	defer cancel()
	for {
		for len(r.ready) > 0 {
			a := r.ready[0]
			r.ready = r.ready[1:]
			if e.exchangeHello(ctx, sr, a) {
				return a, nil
			}
			r.fail(a)
		}
		if r.pending == 0 && len(r.left) == 0 {
			if len(r.held) == 0 {
				return nil, r.tries
			}
			r.ready, r.held = r.held, nil
			continue
		}
		select {
		case <-r.next.C:
			r.dial(calls)
		case a := <-r.answers:
			r.handleResult(a)
		case <-r.hold.C:
			r.ready, r.held = r.held, nil
		case <-r.dead.C:
			return nil, r.tries
		}
	}
}

// A round is a search over all addresses in progress. Only the goroutine that runs it uses it.
type round struct {
	e *Endpoint
	*search
	left    []address     // not dialled yet
	stagger time.Duration // between two dials
	pending int           // dials without a result
	answers chan *dialResult
	ready   []*dialResult // have answered, and are tried next
	held    []*dialResult // have answered over the mesh; kept while an address outside the mesh may still answer
	tries   []Try         // failures

	next *clock.Timer // dials the next address
	hold *clock.Timer // runs after a result was held
	dead *clock.Timer // runs after a final failure, while another address may still answer
}

// close waits for the results of all dials, and closes the connections that are not used.
func (r *round) close() {
	for _, t := range []*clock.Timer{r.next, r.hold, r.dead} {
		t.Stop()
	}
	rest := append(r.ready, r.held...)
	for ; r.pending > 0; r.pending-- {
		rest = append(rest, <-r.answers)
	}
	for _, a := range rest {
		if a.conn != nil {
			_ = a.conn.Close()
		}
	}
}

// dialRest dials the remaining addresses at once.
func (r *round) dialRest() {
	r.stagger = 0
	r.next.Reset(0)
}

// dial dials the next address, if there is one.
func (r *round) dial(ctx context.Context) {
	if len(r.left) == 0 {
		return
	}
	addr := r.left[0]
	r.left = r.left[1:]
	r.pending++
	go guard.Run(func() { r.answers <- r.e.dialAddr(ctx, r.target, addr) }, func(p *guard.Panic) {
		r.e.caught(p)
		r.answers <- &dialResult{addr: addr, err: p}
	})
	r.next.Reset(r.stagger)
}

// handleResult handles the result of a dial.
func (r *round) handleResult(a *dialResult) {
	r.pending--
	switch {
	case a.err != nil:
		r.fail(a)
		r.next.Reset(0)
	case a.mesh:
		if len(r.held) == 0 {
			r.hold.Reset(r.e.cfg.Clock.Scaled(meshHold))
			r.dialRest()
		}
		r.held = append(r.held, a)
	default:
		r.ready = append(r.ready, a)
	}
}

// fail records the failure of one address.
func (r *round) fail(a *dialResult) {
	if a.conn != nil {
		_ = a.conn.Close()
	}
	t := Try{a.addr.AddrPort, a.err, a.addr.sure}
	r.tries = append(r.tries, t)
	if t.final(r.known) {
		r.dead.Reset(r.e.cfg.Clock.Scaled(deadGrace))
		r.dialRest() // so that the others have the whole grace period
	}
}

// from returns the local end to dial from. With an interface, it reaches only peers on the same link.
func (e *Endpoint) from(netdev string) sock.From {
	return sock.From{Netdev: netdev, OnLink: netdev != "", Ports: e.cfg.PortRange}
}

// dialAddr dials one address and reads the listener's challenge.
func (e *Endpoint) dialAddr(ctx context.Context, to target, addr address) *dialResult {
	a := &dialResult{addr: addr}
	if a.conn, a.err = e.network.Dial(ctx, e.from(to.netdev), addr.AddrPort); a.err != nil {
		a.err = limit.Own(a.err)
		return a
	}
	defer onDone(ctx, a.conn)()
	a.in = bufio.NewReader(a.conn)
	raw, err := handshake.ReadChallenge(a.in)
	if err == nil {
		a.x, err = handshake.NewDialler(to.process, raw, e.cfg.Random.For(addr.AddrPort))
	}
	if err != nil {
		var version *handshake.VersionError
		if errors.As(err, &version) {
			_, _ = a.conn.Write(handshake.Reject(handshake.RejectVersion)) // so that the listener's log names this build
		}
		a.err = cause(ctx, err)
		return a
	}
	a.mesh = e.cfg.Mesh != nil && e.cfg.Mesh(a.conn.Local().Addr().WithZone(""))
	return a
}

// exchangeHello completes the handshake with an address that has answered. It reports success.
func (e *Endpoint) exchangeHello(ctx context.Context, sr *search, a *dialResult) bool {
	a.err = func() error {
		hello, err := sr.hello(a.x)
		if err != nil {
			return err
		}
		_ = a.conn.SetDeadline(time.Now().Add(e.cfg.Clock.Scaled(replyTimeout)))
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
	a.link.mustSend = true
	return true
}

// onDone makes the connection's I/O fail when the context ends, until the returned function is called.
func onDone(ctx context.Context, c sock.Conn) (stop func()) {
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

// cause returns the context's error if the context has ended, because the I/O error follows from that. Otherwise it
// returns err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
