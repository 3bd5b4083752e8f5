package gather

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/fleet"
)

// Do is the name of Agent among an agent's handlers.
const Do = "doctor"

// Asked is what an agent is told to look at.
type Asked struct {
	Name   string        `json:"name"`   // what the node is to be called
	Sample time.Duration `json:"sample"` // see Source
	Listen bool          `json:"listen"` // others are to dial the node, as ranks dial rank 0
}

// answer is one line of an agent: first the node, then what came of dialling.
type answer struct {
	Node   *facts.Node  `json:"node,omitempty"`
	Listen string       `json:"listen,omitempty"` // address and port
	Dials  []facts.Dial `json:"dials,omitempty"`
}

// rank0 is where the node is that all are to reach.
type rank0 struct {
	Node string `json:"node"`
	At   string `json:"at"` // "": nowhere, or it is this node
}

// Agent returns the handler of an agent, which looks at the node of a Source.
func Agent(s func() Source) fleet.Handler {
	return func(ctx context.Context, q *fleet.Question) error {
		var asked Asked
		if err := q.With(&asked); err != nil {
			return err
		}
		source := s()
		source.Name, source.Sample = asked.Name, asked.Sample
		n := Node(source)
		a := answer{Node: &n}
		// NCCL listens at the first of the node's addresses.
		if addrs, _ := n.Bootstrap.Get(); asked.Listen && len(addrs) > 0 {
			if l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(addrs[0], 0))); err == nil {
				defer l.Close()
				a.Listen = l.Addr().String()
			}
		}
		if err := q.Answer(a); err != nil {
			return err
		}
		var to rank0
		if err := q.Hear(&to); err != nil {
			return err
		}
		if err := q.Answer(answer{Dials: dial(ctx, to)}); err != nil {
			return err
		}
		var over struct{}
		return q.Hear(&over) // until then others dial this node
	}
}

// dialWait is how long rank 0 may take to answer.
const dialWait = 3 * time.Second

func dial(ctx context.Context, to rank0) []facts.Dial {
	if to.At == "" {
		return nil
	}
	d := net.Dialer{Timeout: dialWait}
	c, err := d.DialContext(ctx, "tcp", to.At)
	if err == nil {
		_ = c.Close()
	}
	return []facts.Dial{{Node: to.Node, To: to.At, Try: facts.Tried(0, err)}}
}

// silence is how long an agent may take to look.
const silence = 30 * time.Second

// Fleet has agents look at all hosts at once. The first is rank 0's node.
func Fleet(ctx context.Context, f *fleet.Fleet, hosts []string, sample time.Duration) (nodes []facts.Node, lost []facts.Lost, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	own, err := os.Hostname()
	if err != nil {
		return nil, nil, err
	}
	visits := make([]visit, len(hosts))
	all := func(do func(v *visit)) {
		var wg sync.WaitGroup
		for i := range visits {
			wg.Go(func() { do(&visits[i]) })
		}
		wg.Wait()
	}
	for i, host := range hosts {
		v := &visits[i]
		if v.name = host; host == fleet.Here {
			v.name = own
		}
		v.call = f.Start(ctx, host, fleet.Request{Do: Do, With: Asked{v.name, sample, i == 0}, Silence: silence + sample})
	}
	defer all(func(v *visit) { v.call.Close() })
	all((*visit).look)
	first := rank0{Node: visits[0].name, At: visits[0].listens}
	all(func(v *visit) { v.dial(first, v == &visits[0]) })
	all(func(v *visit) {
		if v.err == nil {
			_ = v.call.Say(struct{}{}) // it ends anyhow when it is not told
		}
	})
	for _, v := range visits {
		if v.err != nil {
			lost = append(lost, facts.Lost{Name: v.name, Error: reason(v.err)})
		} else {
			nodes = append(nodes, v.node)
		}
	}
	return nodes, lost, ctx.Err()
}

// visit is one host being asked.
type visit struct {
	name    string
	call    *fleet.Call
	node    facts.Node
	listens string
	err     error
}

// look takes what the node knows of itself.
func (v *visit) look() {
	var a answer
	v.err = v.call.Next(&a)
	switch {
	case v.err != nil:
	case a.Node == nil || a.Node.Schema != facts.Schema || a.Node.Name != v.name:
		v.err = fleet.ErrGarbled
	default:
		v.node, v.listens = *a.Node, a.Listen
	}
}

// dial has the node dial rank 0's.
func (v *visit) dial(to rank0, self bool) {
	if v.err != nil {
		return
	}
	if self {
		to = rank0{}
	}
	var a answer
	if v.err = v.call.Say(to); v.err == nil {
		v.err = v.call.Next(&a)
	}
	v.node.Dials = facts.Known(a.Dials)
	if !self && to.At == "" {
		v.node.Dials = facts.Unknown[[]facts.Dial](to.Node + " listened nowhere, for the ranks to meet at")
	}
}

// reason is why a host told nothing, without its name.
func reason(err error) string {
	var at *fleet.HostError
	if errors.As(err, &at) {
		err = at.Err
	}
	return err.Error()
}
