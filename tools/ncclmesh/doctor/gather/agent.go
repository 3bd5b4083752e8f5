package gather

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/fleet"
)

// Do is the name of Agent among an agent's handlers.
const Do = "doctor"

// Asked is what an agent is told to look at.
type Asked struct {
	Name   string        `json:"name"`   // what the node is to be called
	Sample time.Duration `json:"sample"` // see Source
	Salt   string        `json:"salt"`   // see Source
}

// answer is one line of an agent: first the node, then what came of trying the others.
type answer struct {
	Node   *facts.Node    `json:"node,omitempty"`
	Listen netip.AddrPort `json:"listen,omitzero"` // where others dial the node
	Tried  *tried         `json:"tried,omitempty"`
}

// others are the nodes that a node is to try.
type others struct {
	Peers []peer `json:"peers"`
}

// peer is one of them.
type peer struct {
	Node  string         `json:"node"`
	At    netip.AddrPort `json:"at"`    // where it listens, at its port of all its addresses; the zero value: nowhere
	Addrs []netip.Addr   `json:"addrs"` // of its interfaces
}

// tried is what came of it.
type tried struct {
	Clock   time.Time      `json:"clock"` // of the node, between the question and the answer
	Dials   []facts.Dial   `json:"dials"`
	Lookups []facts.Lookup `json:"lookups"`
}

// Agent returns the handler of an agent, which looks at the node of a Source.
func Agent(s func() Source) fleet.Handler {
	return func(ctx context.Context, q *fleet.Question) error {
		var asked Asked
		if err := q.With(&asked); err != nil {
			return err
		}
		source := s()
		source.Name, source.Sample, source.Salt = asked.Name, asked.Sample, asked.Salt
		source.defaults()
		n := Node(source)
		a := answer{Node: &n}
		// NCCL listens at the first of the node's addresses; at the others the paths to them are tried.
		if addrs, _ := n.Bootstrap.Get(); len(addrs) > 0 {
			if l, err := net.Listen("tcp", ":0"); err == nil {
				defer l.Close()
				a.Listen = netip.AddrPortFrom(addrs[0], uint16(l.Addr().(*net.TCPAddr).Port))
			}
		}
		if err := q.Answer(a); err != nil {
			return err
		}
		var to others
		if err := q.Hear(&to); err != nil {
			return err
		}
		t := tried{Clock: time.Now()}
		t.try(ctx, &n, to.Peers, source.Lookup)
		if err := q.Answer(answer{Tried: &t}); err != nil {
			return err
		}
		var over struct{}
		return q.Hear(&over) // until then others dial this node
	}
}

// dialWait is how long a node may take to answer.
const dialWait = 3 * time.Second

// try connects to all others at once, as the ranks of a job do with some of them, and to their addresses in subnets of the
// node's own interfaces.
func (t *tried) try(ctx context.Context, n *facts.Node, to []peer, lookup func(netip.Addr) (string, error)) {
	t.Dials, t.Lookups = make([]facts.Dial, len(to)), lookups(n, to, lookup)
	var wg sync.WaitGroup
	ports := map[string]uint16{}
	for i, p := range to {
		d := &t.Dials[i]
		d.Node = p.Node
		if !p.At.IsValid() {
			d.Try.Why = p.Node + " listened nowhere, for the ranks to meet at"
			continue
		}
		ports[p.Node], d.To = p.At.Port(), p.At.String()
		wg.Go(func() { d.Try = dial(ctx, p.At) })
	}
	for i := range t.Lookups {
		if w := &t.Lookups[i]; ports[w.Node] != 0 && w.Try.OK() {
			wg.Go(func() { w.Dial = dial(ctx, netip.AddrPortFrom(w.Addr, ports[w.Node])) })
		}
	}
	wg.Wait()
}

// dial connects, and does no more.
func dial(ctx context.Context, to netip.AddrPort) facts.Try {
	d := net.Dialer{Timeout: dialWait}
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err == nil {
		_ = c.Close()
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err // what was dialled is said anyhow
	}
	return facts.Tried(0, err)
}

// lookups asks the kernel where it sends packets for others' addresses in subnets of the node's own interfaces that are up, and
// sends nothing. An address that the node has itself leads nowhere else.
func lookups(n *facts.Node, to []peer, lookup func(netip.Addr) (string, error)) []facts.Lookup {
	all := []facts.Lookup{}
	found, _ := n.Topology.Get()
	for _, p := range to {
		for _, a := range p.Addrs {
			own, near := false, false
			for _, l := range found.Links {
				for _, at := range l.Addrs {
					own = own || at.Addr() == a
					near = near || l.Up && l.Carrier && !l.Loopback && at.Contains(a)
				}
			}
			if near && !own {
				dev, err := lookup(a)
				all = append(all, facts.Lookup{Node: p.Node, Addr: a, Dev: dev, Try: facts.Tried(0, err)})
			}
		}
	}
	return all
}

// silence is how long an agent may take to look.
const silence = 30 * time.Second

// Fleet has agents look at all hosts at once, and try each other.
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
	salt := rand.Text()
	for i, host := range hosts {
		v := &visits[i]
		if v.name = host; host == fleet.Here {
			v.name, v.shell = own, f.Dial == nil
		}
		v.call = f.Start(ctx, host, fleet.Request{Do: Do, With: Asked{v.name, sample, salt}, Silence: silence + sample})
	}
	defer all(func(v *visit) { v.call.Close() })
	all((*visit).look)
	var peers []peer
	for i := range visits {
		if visits[i].err == nil {
			peers = append(peers, visits[i].peer())
		}
	}
	all(func(v *visit) {
		v.try(slices.DeleteFunc(slices.Clone(peers), func(p peer) bool { return p.Node == v.name }))
	})
	all(func(v *visit) {
		if v.err == nil {
			_ = v.call.Say(struct{}{}) // it ends anyhow when it is not told
		}
	})
	for _, v := range visits {
		if v.err != nil {
			next, why := fleet.Reason(v.err)
			lost = append(lost, facts.Lost{Name: v.name, Error: why.Error(), Next: next})
		} else {
			nodes = append(nodes, v.node)
		}
	}
	return nodes, lost, ctx.Err()
}

// visit is one host being asked.
type visit struct {
	name    string
	shell   bool // see facts.Node
	call    *fleet.Call
	node    facts.Node
	listens netip.AddrPort
	err     error
}

// look takes what the node knows of itself.
func (v *visit) look() {
	var a answer
	v.err = v.call.Next(&a)
	switch {
	case v.err != nil:
	case a.Node != nil && a.Node.Schema != facts.Schema:
		v.err = fmt.Errorf("%w: build %s there has facts of the form %s, this one, build %s, %s; install the same on both, or give --push",
			fleet.ErrVersion, a.Node.Build, a.Node.Schema, handshake.Build(), facts.Schema)
	case a.Node == nil || a.Node.Name != v.name:
		v.err = fleet.ErrGarbled
	default:
		v.node, v.listens = *a.Node, a.Listen
		v.node.Shell = v.shell
	}
}

// peer is the node for others to try.
func (v *visit) peer() peer {
	p := peer{Node: v.name, At: v.listens}
	found, _ := v.node.Topology.Get()
	for _, l := range found.Links {
		for _, a := range l.Addrs {
			if !l.Loopback && !a.Addr().IsLinkLocalUnicast() {
				p.Addrs = append(p.Addrs, a.Addr())
			}
		}
	}
	return p
}

// try has the node try others.
func (v *visit) try(peers []peer) {
	if v.err != nil {
		return
	}
	begun := time.Now()
	var a answer
	if v.err = v.call.Say(others{peers}); v.err == nil {
		v.err = v.call.Next(&a)
	}
	if v.err == nil && a.Tried == nil {
		v.err = fleet.ErrGarbled
	}
	if v.err != nil {
		return
	}
	v.node.Dials, v.node.Lookups = facts.Known(a.Tried.Dials), facts.Known(a.Tried.Lookups)
	// By the wall clock, without Go's monotonic one: the node has looked at its own between begun and now.
	v.node.Ahead = facts.Known(facts.Ahead{Least: a.Tried.Clock.Sub(time.Now().Round(0)), Most: a.Tried.Clock.Sub(begun.Round(0))})
}
