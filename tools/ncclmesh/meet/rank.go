package meet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"ncclmesh/tools/ncclmesh/fleet"
)

const again = 200 * time.Millisecond // between two tries to reach rank 0

// Attend is another rank's side: it does what rank 0 asks, until that is over. It gives up when rank 0 is not there
// within that time.
func Attend(ctx context.Context, p Place, port int, key string, within time.Duration, handlers fleet.Handlers) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	a := &attendant{place: p, host: host, key: []byte(key), to: net.JoinHostPort(p.Master, strconv.Itoa(port)), handlers: handlers}
	defer a.work.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, w, err := a.come(ctx, within)
	if err != nil {
		return err
	}
	for asked := false; ; asked = true {
		switch err := a.await(ctx, c, w); {
		case errors.Is(err, errOver), asked && errors.Is(err, errGone): // this connection may have been too late to hear it
			return nil
		case err != nil:
			return err
		}
		question := c
		a.work.Go(func() { a.serve(ctx, question) })
		if c, w, err = a.come(ctx, greeting); err != nil {
			a.work.Wait() // what is asked goes on; rank 0 wants nothing more
			return ctx.Err()
		}
	}
}

var (
	errOver = errors.New("over")
	errGone = errors.New("rank 0 has gone")
)

// attendant is a rank that attends.
type attendant struct {
	place    Place
	host, to string
	key      []byte
	handlers fleet.Handlers
	work     sync.WaitGroup
}

// meeting is what both sides of a connection have said so far.
type meeting struct {
	theirs welcome
	own    arrival
}

// come goes to rank 0, when it is there.
func (a *attendant) come(ctx context.Context, within time.Duration) (net.Conn, meeting, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for why := error(nil); ; {
		c, m, err := a.try(ctx)
		if err == nil {
			return c, m, nil
		}
		if why == nil || ctx.Err() == nil { // else it was cut short, and says no more than that
			why = err
		}
		select {
		case <-ctx.Done():
			return nil, m, fmt.Errorf("rank %d has not found rank 0 at %s (MASTER_ADDR and --rank-port) within %v: %w", a.place.Rank, a.to, within, why)
		case <-time.After(again):
		}
	}
}

func (a *attendant) try(ctx context.Context) (_ net.Conn, m meeting, err error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", a.to)
	if err != nil {
		return nil, m, err
	}
	defer func() {
		if err != nil {
			_ = c.Close()
		}
	}()
	if err := hear(c, greeting, &m.theirs); err != nil {
		return nil, m, err
	}
	if m.theirs.Meet != Schema {
		return nil, m, fmt.Errorf("the listener there answers %q, not %q: is it another program?", m.theirs.Meet, Schema)
	}
	m.own = arrival{Rank: a.place.Rank, Local: a.place.Local, Host: a.host, Nonce: nonce()}
	m.own.Proof = prove(a.key, "rank", m.theirs, m.own)
	return c, m, say(c, m.own)
}

// await waits for a question, or the end.
func (a *attendant) await(ctx context.Context, c net.Conn, m meeting) error {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	var w word
	err := hear(c, 0, &w)
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case err != nil:
		err = fmt.Errorf("%w, or refused rank %d, as it does for another NCCL_MESH_KEY: %w", errGone, a.place.Rank, err)
	case w.Over:
		err = errOver
	case !proved(a.key, w.Ask, "asker", m.theirs, m.own):
		err = fmt.Errorf("the listener at %s has another NCCL_MESH_KEY than rank %d, or none: all ranks must have the same", a.to, a.place.Rank)
	}
	if err != nil {
		_ = c.Close()
	}
	return err
}

func (a *attendant) serve(ctx context.Context, c net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	_ = fleet.Serve(ctx, c, c, a.handlers) // that rank 0 is gone is seen elsewhere
	_ = c.Close()
}
