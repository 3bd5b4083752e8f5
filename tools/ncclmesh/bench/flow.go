package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"ncclmesh/transport"
	"ncclmesh/transport/conn"
)

const (
	outstanding = 8                      // messages under way
	warming     = 100 * time.Millisecond // before what counts
	patient     = 60 * time.Second       // for connections, and for the other side's end
)

// run has flows go, and returns how each went.
func (a *agent) run(ctx context.Context, r *run) (map[string]flow, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patient+r.For, errors.New("the other side does not connect, or does not end"))
	defer cancel()
	c, err := a.connect(ctx, r)
	a.open = c
	if err != nil {
		return nil, err
	}
	if r.Latency {
		return c.latency(ctx, r)
	}
	flows, errs := map[string]flow{}, []error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	each := func(name string, do func() (flow, error)) {
		wg.Go(func() {
			f, err := do()
			mu.Lock()
			defer mu.Unlock()
			flows[name] = f
			errs = append(errs, err)
		})
	}
	for i, s := range c.sends {
		each(r.Sends[i].Flow, func() (flow, error) { return sendFor(ctx, s, r) })
	}
	for i, s := range c.recvs {
		each(r.Recvs[i], func() (flow, error) { return recvAll(ctx, s, r) })
	}
	wg.Wait()
	return flows, errors.Join(errs...)
}

// connections are those of a run.
type connections struct {
	sends   []*conn.Sender
	recvs   []*conn.Receiver
	closers []func() error
}

// close closes them, the last first. A connection that has failed has said so before.
func (c *connections) close() {
	for _, f := range slices.Backward(c.closers) {
		_ = f()
	}
}

// connect sets up all connections of a run at once.
func (a *agent) connect(ctx context.Context, r *run) (c *connections, err error) {
	c = &connections{}
	var dials []*transport.Dialing
	for i := range r.Sends {
		d, err := a.dial(&r.Sends[i])
		if err != nil {
			return c, err
		}
		c.closers = append(c.closers, d.Close)
		dials = append(dials, d)
	}
	for i, d := range dials {
		var s *conn.Sender
		if err := await(ctx, func() (bool, error) { s, err = d.Poll(); return s != nil, err }); err != nil {
			return c, fmt.Errorf("connect for %s: %w", r.Sends[i].Flow, err)
		}
		c.sends, c.closers = append(c.sends, s), append(c.closers, s.Close)
	}
	for _, name := range r.Recvs {
		l := a.waiting[name]
		if l == nil {
			return c, fmt.Errorf("nobody listens for %s", name)
		}
		delete(a.waiting, name)
		c.closers = append(c.closers, l.Close)
		var s *conn.Receiver
		if err := await(ctx, func() (bool, error) { s, err = l.Accept(); return s != nil, err }); err != nil {
			return c, fmt.Errorf("accept %s: %w", name, err)
		}
		c.recvs, c.closers = append(c.recvs, s), append(c.closers, s.Close)
	}
	return c, nil
}

// slots are the buffers of a flow's messages, one for each under way.
func slots(bytes int, c *conn.Conn) (*memory, error) {
	m, err := newMemory(outstanding * bytes)
	if err != nil {
		return nil, err
	}
	if err := m.in(c); err != nil {
		return nil, errors.Join(err, m.free())
	}
	return m, nil
}

// sendFor sends messages until the time is up, and then an empty one, and counts what was
// delivered after the warm-up.
func sendFor(ctx context.Context, s *conn.Sender, r *run) (f flow, err error) {
	m, err := slots(r.Bytes, &s.Conn)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, m.free()) }()
	for i := range outstanding {
		pattern(m.Bytes()[i*r.Bytes:(i+1)*r.Bytes], i)
	}
	f.Lanes, f.Allowed = carriers(&s.Conn)
	var queue []*conn.Request
	begun := time.Now()
	var counted time.Time
	for n := 0; ; n++ {
		if len(queue) == outstanding {
			got, err := finish(ctx, queue[0])
			if err != nil {
				return f, err
			}
			queue = queue[1:]
			switch now := time.Now(); {
			case counted.IsZero() && now.Sub(begun) >= warming:
				counted = now
			case !counted.IsZero():
				f.Bytes, f.Took = f.Bytes+int64(got), now.Sub(counted)
			}
		}
		if f.Took >= r.For {
			break
		}
		q, err := m.sendPart(ctx, s, n%outstanding*r.Bytes, r.Bytes)
		if err != nil {
			return f, err
		}
		queue = append(queue, q)
	}
	q, err := m.sendPart(ctx, s, 0, 0)
	if err != nil {
		return f, err
	}
	for _, q := range append(queue, q) {
		if _, err := finish(ctx, q); err != nil {
			return f, err
		}
	}
	return f, nil
}

// recvAll receives messages until an empty one, and looks at what the last of them hold.
func recvAll(ctx context.Context, s *conn.Receiver, r *run) (f flow, err error) {
	m, err := slots(r.Bytes, &s.Conn)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, m.free()) }()
	f.Lanes, f.Allowed = carriers(&s.Conn)
	var queue []*conn.Request
	for n := 0; ; n++ {
		if len(queue) == outstanding {
			got, err := finish(ctx, queue[0])
			if err != nil {
				return f, err
			}
			if got == 0 {
				break
			}
			if f.Bytes += int64(got); got != r.Bytes {
				f.Wrong += int64(r.Bytes - got)
			}
			queue = queue[1:]
		}
		q, err := m.recvPart(ctx, s, n%outstanding*r.Bytes, r.Bytes)
		if err != nil {
			return f, err
		}
		queue = append(queue, q)
	}
	for i := range min(outstanding, int(f.Bytes/int64(r.Bytes))) {
		f.Wrong += wrong(m.Bytes()[i*r.Bytes:(i+1)*r.Bytes], i)
	}
	return f, nil
}

const maxRounds = 20_000

// latency has a message go there and back, until the time is up.
func (c *connections) latency(ctx context.Context, r *run) (flows map[string]flow, err error) {
	if len(c.sends) != 1 || len(c.recvs) != 1 {
		return nil, errors.New("a latency is between one flow each way")
	}
	s, t := c.sends[0], c.recvs[0]
	m, err := slots(r.Bytes, &s.Conn)
	if err != nil {
		return nil, err
	}
	if err := m.in(&t.Conn); err != nil {
		return nil, errors.Join(err, m.free())
	}
	defer func() { err = errors.Join(err, m.free()) }()
	var f flow
	f.Lanes, f.Allowed = carriers(&s.Conn)
	times := make([]time.Duration, 0, maxRounds)
	pattern(m.Bytes()[:r.Bytes], 0)
	begun := time.Now()
	for over := false; !over; {
		bytes, sent := r.Bytes, time.Now()
		if r.First && len(times) > 0 && (len(times) == maxRounds || sent.Sub(begun) >= r.For) {
			bytes = 0
		}
		got, err := m.round(ctx, s, t, r, bytes)
		if err != nil {
			return nil, err
		}
		if over = got == 0; !over {
			times = append(times[:min(len(times), maxRounds-1)], time.Since(sent)/2)
			f.Bytes += int64(got)
		}
	}
	f.Wrong = wrong(m.Bytes()[r.Bytes:2*r.Bytes], 0)
	if r.First && len(times) > 0 {
		slices.Sort(times)
		f.Median, f.P99 = times[len(times)/2], times[len(times)*99/100]
	}
	return map[string]flow{r.Sends[0].Flow: f}, nil
}

// round sends a message and receives its answer; who is not the first receives one, and
// answers with as many bytes. Those that came are returned.
func (m *memory) round(ctx context.Context, s *conn.Sender, t *conn.Receiver, r *run, bytes int) (got int, err error) {
	back, err := m.recvPart(ctx, t, r.Bytes, r.Bytes)
	if err != nil {
		return 0, err
	}
	if !r.First {
		if bytes, err = finish(ctx, back); err != nil {
			return 0, err
		}
	}
	forth, err := m.sendPart(ctx, s, 0, bytes)
	if err != nil {
		return 0, err
	}
	if r.First {
		if bytes, err = finish(ctx, back); err != nil {
			return 0, err
		}
	}
	_, err = finish(ctx, forth)
	return bytes, err
}
