package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Call is what is going on with one host. Its methods may be called from any goroutine.
type Call struct {
	fleet   *Fleet
	host    string
	request Request
	cancel  context.CancelCauseFunc
	program *program
	begun   error                // why there is none
	greeted chan struct{}        // closed when the host has said hello, or will not
	asked   chan struct{}        // closed when it has said hello and was asked
	answers chan json.RawMessage // closed after the last
	over    chan struct{}        // closed when nothing is left of the call
	hello   Hello                // set before greeted is closed
	err     error                // set before answers is closed
}

// Start begins to ask a host. It does not block. Who starts a call closes it.
func (f *Fleet) Start(ctx context.Context, host string, r Request) *Call {
	ctx, cancel := context.WithCancelCause(ctx)
	r.Silence, r.Limit = cmp.Or(r.Silence, defaultSilence), cmp.Or(r.Limit, maxTotal)
	c := &Call{
		fleet: f, host: host, request: r, cancel: cancel,
		greeted: make(chan struct{}), asked: make(chan struct{}), answers: make(chan json.RawMessage), over: make(chan struct{}),
	}
	c.program, c.begun = f.start(ctx, host, r.Log)
	go func() {
		c.err = c.run(ctx)
		if c.hello.Schema == "" {
			close(c.greeted)
		}
		close(c.answers)
		cancel(c.err) // which ends the program's input
		if c.program != nil {
			c.program.end()
		}
		close(c.over)
	}()
	return c
}

// Host is the one that is asked.
func (c *Call) Host() string { return c.host }

// Hello waits for the host's hello, which is empty if none comes: Next says why.
func (c *Call) Hello() Hello {
	<-c.greeted
	return c.hello
}

// Next waits for an answer and reads it into v, a pointer. It is io.EOF after the last, and a
// *HostError when something is wrong, which ends the call.
func (c *Call) Next(v any) error {
	<-c.greeted
	late := time.NewTimer(c.request.Silence)
	defer late.Stop()
	var err error
	select {
	case text, ok := <-c.answers:
		switch {
		case ok:
			if err = json.Unmarshal(text, v); err == nil {
				return nil
			}
			err = fmt.Errorf("%w: %w", ErrGarbled, err)
		case c.err == nil:
			return io.EOF
		default:
			err = c.err
		}
	case <-late.C:
		err = fmt.Errorf("%w: no message for %v", ErrSilent, c.request.Silence)
	}
	c.cancel(err)
	return &HostError{c.host, err}
}

// Say tells the handler something. It may block while the host does not read.
func (c *Call) Say(v any) error {
	if c.Hello().Schema == "" {
		return &HostError{c.host, ErrEnded}
	}
	<-c.asked
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.send(fromAsker{Say: text})
}

// Close ends the call. The agent hears of it, and has five seconds to end, ten where it was pushed.
func (c *Call) Close() {
	c.cancel(context.Canceled)
	<-c.over
}

func (c *Call) send(m fromAsker) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := c.program.say(append(text, '\n')); err != nil {
		return &HostError{c.host, ErrEnded}
	}
	return nil
}

// heard is what a host has said, or why it says nothing more.
type heard struct {
	fromAgent
	noise []byte // instead of a hello
	err   error
}

// run is a call from its hello to its end.
func (c *Call) run(ctx context.Context) error {
	if c.begun != nil {
		return c.begun
	}
	ask := fromAsker{Do: c.request.Do}
	if c.request.With != nil {
		var err error
		if ask.With, err = json.Marshal(c.request.With); err != nil {
			return err
		}
	}
	said := make(chan heard)
	go listen(ctx, newLines(c.program.out, c.request.Limit), said)
	if err := c.greet(ctx, said); err != nil {
		return err
	}
	go func() {
		defer close(c.asked)
		_ = c.send(ask) // whether it has come through is seen by the answers
	}()
	for {
		var h heard
		select {
		case h = <-said:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		switch {
		case h.err == io.EOF:
			return fmt.Errorf("%w%s", ErrEnded, c.program.lastWords())
		case h.err != nil:
			return h.err
		case h.End != nil && h.End.Error != "":
			return &AgentError{h.End.Error}
		case h.End != nil:
			return nil
		case h.Hello != nil:
			return fmt.Errorf("%w: a second hello", ErrGarbled)
		}
		select {
		case c.answers <- h.Answer:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// greet waits for the hello.
func (c *Call) greet(ctx context.Context, said <-chan heard) error {
	wait := c.fleet.Hello
	if wait == 0 {
		if wait = defaultHello; c.program.pushes {
			wait = pushing
		}
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case h := <-said:
		switch {
		case h.err == io.EOF:
			return c.program.mute(c.fleet, c.host, h.noise)
		case h.err != nil:
			return h.err
		case h.Hello.Schema != Schema:
			return fmt.Errorf("%w: ncclmesh build %s there speaks %q, this one %q; install the same on both, or give --push",
				ErrVersion, h.Hello.Build, h.Hello.Schema, Schema)
		}
		c.hello = *h.Hello
		close(c.greeted)
		return nil
	case <-late.C:
		return fmt.Errorf("%w: no hello within %v%s", ErrSilent, wait, c.program.lastWords())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// listen hands on what a host says, the hello first, until it says nothing more.
func listen(ctx context.Context, from *lines, said chan<- heard) {
	tell := func(h heard) bool {
		select {
		case said <- h:
			return h.err == nil
		case <-ctx.Done():
			return false
		}
	}
	hello, noise, err := from.hello()
	more := tell(heard{fromAgent{Hello: &hello}, noise, err})
	for more {
		var h heard
		line, err := from.next()
		if err == nil {
			if h.fromAgent, err = parseAgent(line); err != nil {
				err = fmt.Errorf("%w: %q: %w", ErrGarbled, clip(line), err)
			}
		}
		h.err = err
		more = tell(h)
	}
}
