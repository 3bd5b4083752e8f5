package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"ncclmesh/handshake"
)

// Handler does what was asked by its name. Its error is what the asker is told. The context
// ends when the asker has gone.
type Handler func(ctx context.Context, q *Question) error

// Handlers are an agent's, by name.
type Handlers map[string]Handler

// Question is what a handler has of its asker. Answer may be called from any goroutine.
type Question struct {
	with json.RawMessage
	said chan json.RawMessage
	ctx  context.Context

	mu  sync.Mutex // over out
	out io.Writer
}

// With reads what was asked into v, a pointer. A member that v does not have is an error.
func (q *Question) With(v any) error {
	if q.with == nil {
		return nil
	}
	d := json.NewDecoder(strings.NewReader(string(q.with)))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("this agent, build %s, does not understand the request: %w", handshake.Build(), err)
	}
	return nil
}

// Answer sends an answer. An error means that the asker has gone.
func (q *Question) Answer(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return q.send(fromAgent{Answer: text})
}

// Hear waits for the next word of the asker, and reads it into v, a pointer. It is the
// context's error when the asker has gone.
func (q *Question) Hear(v any) error {
	select {
	case said := <-q.said:
		return json.Unmarshal(said, v)
	case <-q.ctx.Done():
		return context.Cause(q.ctx)
	}
}

func (q *Question) send(m fromAgent) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(text) >= maxLine {
		return fmt.Errorf("an answer of %d bytes; %d at most can be sent", len(text), maxLine-1)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	_, err = q.out.Write(append(text, '\n'))
	return err
}

var errAskerGone = errors.New("the asking command has ended")

// Serve is an agent: it says hello, does what it is asked, once, and says how that ended.
// It returns an error when the asker could not be told. in is read until it ends, which
// ends the handler; a read of it may be under way when Serve returns.
func Serve(ctx context.Context, in io.Reader, out io.Writer, handlers Handlers) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	q := &Question{ctx: ctx, out: out, said: make(chan json.RawMessage, 64)}
	if err := q.send(fromAgent{Hello: &Hello{Schema, handshake.Build(), handshake.Version}}); err != nil {
		return err
	}
	from := newLines(in, maxTotal)
	var end end
	if err := q.serve(from, cancel, handlers); err != nil {
		end.Error = err.Error()
	}
	return q.send(fromAgent{End: &end})
}

func (q *Question) serve(from *lines, cancel context.CancelCauseFunc, handlers Handlers) error {
	line, err := from.next()
	if err == io.EOF {
		return errors.New("`ncclmesh agent` received no request: other commands start it on a host and send it requests")
	}
	var m fromAsker
	if err == nil {
		err = json.Unmarshal(line, &m)
	}
	if err != nil {
		return fmt.Errorf("the request cannot be read: %w", err)
	}
	h := handlers[m.Do]
	if h == nil {
		return fmt.Errorf("this agent, build %s, does not know the request %q, only %s; update it", handshake.Build(), m.Do,
			strings.Join(slices.Sorted(maps.Keys(handlers)), ", "))
	}
	q.with = m.With
	go q.listen(from, cancel)
	return h(q.ctx, q)
}

// listen takes what the asker says, until it has gone.
func (q *Question) listen(from *lines, cancel context.CancelCauseFunc) {
	for {
		line, err := from.next()
		var m fromAsker
		if err == nil {
			err = json.Unmarshal(line, &m)
		}
		switch {
		case err == io.EOF:
			cancel(errAskerGone)
			return
		case err == nil && m.Say == nil:
			err = errors.New("want an object with say")
		}
		if err != nil {
			cancel(fmt.Errorf("the message cannot be read: %w", err))
			return
		}
		select {
		case q.said <- m.Say:
		case <-q.ctx.Done():
			return
		}
	}
}
