package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"ncclmesh/tools/ncclmesh/fleet"
)

// ErrBusy marks nodes on which something runs.
var ErrBusy = errors.New("a measurement would disturb that; --while-busy measures all the same")

// silence is the longest that an order may take.
const silence = 4 * time.Minute

// Options are what all measurements have in common.
type Options struct {
	WhileBusy bool
	Progress  func(text string) // told what goes on; nil: nobody is
}

func (o *Options) say(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

// member is an agent that takes orders.
type member struct {
	name string
	call *fleet.Call
	started
}

// crew are the agents of all hosts, in their order.
type crew []*member

// muster starts the agents with a request each. It fails when one does not come, or is busy and must not be disturbed.
func muster(ctx context.Context, f *fleet.Fleet, hosts []string, o *Options, request func(host string) fleet.Request) (c crew, err error) {
	defer func() {
		if err != nil {
			c.dismiss()
		}
	}()
	for _, host := range hosts {
		c = append(c, &member{name: host, call: f.Start(ctx, host, request(host))})
	}
	errs := fleet.Each(c, func(_ int, m *member) error {
		if err := m.call.Next(&m.started); err != nil {
			return err
		}
		if m.name == fleet.Here {
			m.name = m.Hostname
		}
		err := m.call.Hello().Check()
		if len(m.Busy) > 0 && !o.WhileBusy {
			err = fmt.Errorf("%s: %w", strings.Join(m.Busy, "; "), ErrBusy)
		}
		if err != nil {
			return &fleet.HostError{Host: m.name, Err: err}
		}
		return nil
	})
	return c, errs
}

// request is that for agents of the plugin's own transport.
func (o *Options) request(string) fleet.Request {
	return fleet.Request{Do: Do, With: setup{o.WhileBusy}, Silence: silence}
}

// parting is how long agents may take to close their connections.
const parting = 5 * time.Second

// dismiss ends the agents.
func (c crew) dismiss() {
	_ = fleet.Each(c, func(_ int, m *member) error {
		defer time.AfterFunc(parting, m.call.Close).Stop()
		defer m.call.Close()
		if m.call.Hello().Schema != "" && m.call.Say(order{End: true}) == nil {
			var d done
			for m.call.Next(&d) == nil { // what is still answered is of no use
			}
		}
		return nil
	})
}

// together does something with all agents at once for which each waits for the others. The first that fails ends all, and is
// what is told.
func (c crew) together(do func(rank int, m *member) error) error {
	var first error
	var once sync.Once
	_ = fleet.Each(c, func(i int, m *member) error {
		if err := do(i, m); err != nil {
			once.Do(func() {
				first = err
				for _, other := range c {
					go other.call.Close()
				}
			})
		}
		return nil
	})
	return first
}

// do gives an order. An error of the order itself leaves the agent ready for the next, which
// is not given before.
func (m *member) do(o order) (d done, err error) {
	if err := m.call.Say(o); err != nil {
		return d, err
	}
	if err := m.call.Next(&d); err != nil {
		if err == io.EOF {
			err = fleet.ErrEnded
		}
		return d, err
	}
	if d.Error != "" {
		return d, &fleet.HostError{Host: m.name, Err: errors.New(d.Error)}
	}
	return d, nil
}

// memory is what buffers may take on every node.
func (c crew) memory() int64 {
	least := c[0].MemBytes
	for _, m := range c {
		least = min(least, m.MemBytes)
	}
	return least
}
