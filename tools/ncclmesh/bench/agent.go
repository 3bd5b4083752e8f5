package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"ncclmesh/handshake"
	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/tools/ncclmesh/topo"
	"ncclmesh/transport"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/path"
)

// Serve returns the handler of an agent. options are read when it is asked: the environment's.
func Serve(options func() (transport.Options, error)) fleet.Handler {
	return func(ctx context.Context, q *fleet.Question) error {
		var s setup
		if err := q.With(&s); err != nil {
			return err
		}
		o, err := options()
		if err != nil {
			return err
		}
		o.Log = slog.New(slog.DiscardHandler)
		return serve(ctx, q, o, s)
	}
}

// agent is one, while it is asked.
type agent struct {
	host      host
	t         *transport.Transport
	ways      map[string][]path.Path // that are proved, by the peer's id
	peerPorts map[string][]handshake.Port
	waiting   map[string]*transport.Listener // by flow
	open      *connections                   // of the last run: the other side may not have seen their end before the next order
	ring      *ring                          // of Join; nil: none
}

func serve(ctx context.Context, q *fleet.Question, o transport.Options, s setup) (err error) {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	h := host{"/proc", cmp.Or(o.Sysfs, "/sys")}
	hello := started{Hostname: name, MemBytes: h.memBytes(), Busy: h.busy()}
	if len(hello.Busy) > 0 && !s.WhileBusy {
		return q.Answer(hello)
	}
	a := &agent{host: h, ways: map[string][]path.Path{}, peerPorts: map[string][]handshake.Port{}, waiting: map[string]*transport.Listener{}}
	if a.t, err = transport.New(o); err != nil {
		return err
	}
	defer func() {
		a.forget()
		a.leave()
		err = errors.Join(err, a.t.Close())
	}()
	l, err := a.t.Listen()
	if err != nil {
		return err
	}
	handle := l.Handle()
	hello.ID, hello.Handle = a.t.Node().String(), handle[:]
	if err := q.Answer(hello); err != nil {
		return err
	}
	return answerOrders(ctx, q, a.obey)
}

// answerOrders obeys the orders of a question, and answers each, until one of them ends the question.
func answerOrders(ctx context.Context, q *fleet.Question, obey func(context.Context, order) (done, error)) error {
	for {
		var o order
		if err := q.Hear(&o); err != nil {
			return err
		}
		if o.End {
			return nil
		}
		d, err := obey(ctx, o)
		if err != nil {
			d.Error = fault.OneLine(err) // of this order: the next may do
		}
		if err := q.Answer(d); err != nil {
			return err
		}
	}
}

func (a *agent) obey(ctx context.Context, o order) (d done, err error) {
	a.forget()
	switch {
	case o.Survey != nil:
		err = a.survey(ctx, o.Survey)
	case o.Listen != nil:
		d.Handles, err = a.listen(o.Listen)
	case o.Run != nil:
		before := a.host.processor()
		d.Flows, err = a.run(ctx, o.Run)
		d.Usage = a.host.processor().since(before, a.host.boot())
	case o.Join != nil:
		err = a.join(ctx, o.Join)
	case o.Play != nil:
		d.Played, err = a.play(ctx, o.Play)
	}
	return d, err
}

// forget closes the connections of the last run.
func (a *agent) forget() {
	if a.open != nil {
		a.open.close()
		a.open = nil
	}
}

// survey tries the ways to a peer, so that flows may go over those that are proved.
func (a *agent) survey(ctx context.Context, raw []byte) error {
	h, err := handshake.ReadHandle(raw)
	if err != nil {
		return err
	}
	s, err := a.t.Survey(ctx, h)
	if err != nil {
		return err
	}
	peer := s.Peer.String()
	a.ways[peer], a.peerPorts[peer] = append(s.RDMA, s.TCP...), s.Ports
	return nil
}

// name is a way by the names of its ports.
func (a *agent) name(peer string, w path.Path) Way {
	own, there := a.t.Ports()[w.Local], a.peerPorts[peer][w.Remote]
	return Way{Port: topo.PortName(own.Now()), PeerPort: topo.PortName(lane.PeerPort(there)), RDMA: own.Kind() == lane.Verbs}
}

func (a *agent) listen(flows []string) (map[string][]byte, error) {
	handles := map[string][]byte{}
	for _, f := range flows {
		l, err := a.t.Listen()
		if err != nil {
			return nil, err
		}
		a.waiting[f] = l
		handle := l.Handle()
		handles[f] = handle[:]
	}
	return handles, nil
}

// dial begins a connection over the ways of a flow.
func (a *agent) dial(s *send) (*transport.Dialing, error) {
	h, err := handshake.ReadHandle(s.Handle)
	if err != nil {
		return nil, err
	}
	if len(s.Ways) == 0 {
		return a.t.Dial(h), nil
	}
	var ways []path.Path
	for _, want := range s.Ways {
		found := false
		for _, w := range a.ways[s.Peer] {
			if !found && a.name(s.Peer, w) == want {
				ways, found = append(ways, w), true
			}
		}
		if !found {
			return nil, fmt.Errorf("the path from %s to %s is not validated from this side", want.Port, want.PeerPort)
		}
	}
	return a.t.DialOver(h, ways), nil
}
