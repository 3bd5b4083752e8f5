package topo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/transport"
	"ncclmesh/transport/discovery"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/path"
	"ncclmesh/transport/topology"
)

// Probe returns the handler of an agent. options are read when it is asked: the environment's.
func Probe(options func() (transport.Options, error)) fleet.Handler {
	return func(ctx context.Context, q *fleet.Question) error {
		if err := q.With(&struct{}{}); err != nil {
			return err
		}
		o, err := options()
		if err != nil {
			return err
		}
		p := &probe{job: o}
		o.Relay, o.Observes, o.Log = transport.RelayAuto, true, slog.New(warnings{&p.notes})
		return p.run(ctx, q, o)
	}
}

// probe is what an agent does for a survey.
type probe struct {
	t     *transport.Transport // nil where there is nothing to prove
	job   transport.Options    // of a job's process
	own   node
	notes notes
}

func (p *probe) run(ctx context.Context, q *fleet.Question, o transport.Options) (err error) {
	var own error // why there is nothing to prove
	if p.t, own = transport.New(o); own == nil {
		defer func() { err = errors.Join(err, p.close()) }()
	}
	found, err := topology.Discover(topology.Source{Sysfs: o.Sysfs})
	if err != nil {
		return err
	}
	if err := p.describe(found, own); err != nil {
		return err
	}
	if err := q.Answer(answer{Node: &p.own}); err != nil {
		return err
	}
	var others peers
	if err := q.Hear(&others); err != nil {
		return err
	}
	s := &sights{}
	if p.t != nil {
		if s, err = p.look(ctx, others); err != nil {
			return err
		}
	}
	s.Notes = p.notes.take()
	if err := q.Answer(answer{Sights: s}); err != nil {
		return err
	}
	return p.obey(ctx, q)
}

// close ends what has looked at the cables.
func (p *probe) close() error {
	t := p.t
	p.t = nil
	if t == nil {
		return nil
	}
	return t.Close()
}

// obey validates routes as it is told. Until it is told nothing more, others try this node.
func (p *probe) obey(ctx context.Context, q *fleet.Question) (err error) {
	var e *endpoint
	defer func() {
		if e != nil {
			err = errors.Join(err, e.end())
		}
	}()
	for {
		var o order
		if err := q.Hear(&o); err != nil {
			return err
		}
		var a answer
		switch {
		case o.Open && e == nil:
			if err := p.close(); err != nil { // the ports of NCCL_MESH_PORTS may suffice for one process alone
				return err
			}
			a.Opened = &opened{Off: p.job.Relay == transport.RelayOff}
			if a.Opened.Off {
				break
			}
			if e, err = openEndpoint(ctx, p.job); err != nil {
				a.Opened.Error = fault.OneLine(err)
				break
			}
			handle := e.l.Handle()
			a.Opened.Handle = handle[:]
		case len(o.Dial) > 0 && e != nil:
			if a.Reached, err = e.dial(ctx, o.Dial); err != nil {
				return err
			}
		default:
			return nil
		}
		if err := q.Answer(a); err != nil {
			return err
		}
	}
}

// describe is what the node says first.
func (p *probe) describe(found *topology.Node, own error) error {
	cables := map[string]bool{}
	used := map[string]bool{}
	if p.t != nil {
		l, err := p.t.Listen()
		if err != nil {
			return err
		}
		handle := l.Handle()
		p.own.Handle, p.own.ID = handle[:], p.t.Node().String()
		for _, name := range p.t.Cables() {
			cables[name] = true
		}
		for _, port := range p.t.Ports() {
			if port.Now().Usable() {
				used[port.Now().Short()] = true
			}
		}
	}
	rdma := map[string]bool{}
	for _, port := range found.Ports {
		d := describe(&port, used)
		d.Cable = true
		rdma[port.Netdev] = true
		p.own.Ports = append(p.own.Ports, d)
	}
	masters := map[int]bool{} // bridges and the like of RDMA ports, whose cables they share
	for _, l := range found.Links {
		masters[l.Master] = masters[l.Master] || rdma[l.Name]
	}
	for _, port := range found.Plain {
		if d := describe(&port, used); !rdma[port.Netdev] && cables[port.Netdev] && !masters[port.IfIndex] {
			d.Cable = true
			p.own.Ports = append(p.own.Ports, d)
		}
	}
	p.own.Notes = append(found.Warnings, p.notes.take()...)
	if own != nil {
		p.own.Notes = append(p.own.Notes, fault.OneLine(own))
		if !errors.Is(own, fault.ErrNoPorts) { // the ports' states and the notes tell of that
			p.own.NoProcess = fault.OneLine(own)
		}
	}
	return nil
}

func describe(p *topology.Port, used map[string]bool) Port {
	d := Port{
		Name: PortName(p), Cage: p.Cage(), Label: p.PhysPort, State: p.State, Carrier: p.Carrier || p.Netdev == "" && p.Active,
		Mbps: p.LinkMbps, PCIMbps: p.PCIMbps, MTU: p.NetdevMTU, Used: used[p.Short()], Outside: p.Outside != "",
	}
	if p.Device != "" {
		d.Device = p.Short()
	}
	return d
}

// DiscoveryPort is the UDP port of neighbour discovery, on which routes through other nodes depend.
const DiscoveryPort = discovery.UDPPort

// reachWait is how long an agent tries to reach another over the network that connections are set up over. A job waits for longer,
// because its ranks do not start at the same time; the agents of a survey all listen before the first of them dials.
const reachWait = 5 * time.Second

// look queries the neighbours, and tries the ways to all others at once.
func (p *probe) look(ctx context.Context, others peers) (*sights, error) {
	reach, cancel := context.WithTimeout(ctx, reachWait)
	defer cancel()
	var mu sync.Mutex
	s := &sights{}
	var errs []error
	var wg sync.WaitGroup
	for _, raw := range others.Handles {
		h, err := handshake.ReadHandle(raw)
		if err != nil {
			return nil, err
		}
		wg.Go(func() {
			found, err := p.t.Survey(reach, h)
			mu.Lock()
			defer mu.Unlock()
			for _, err := range append(found.Errs, err) {
				if errors.Is(err, fault.ErrOwn) {
					s.Own = fault.OneLine(err)
				}
			}
			if err != nil {
				s.Notes = append(s.Notes, fault.OneLine(err))
				return
			}
			s.take(found, p.t.Ports())
		})
	}
	wg.Go(func() {
		heard, err := p.t.Neighbours(ctx)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, err)
		}
		for _, n := range heard {
			s.Heard = append(s.Heard, sight{Port: n.Name, Peer: n.Node.String(), PeerPort: n.PeerName})
		}
	})
	wg.Wait()
	s.Heard = slices.Compact(s.Heard) // several processes of one node
	if len(s.Notes) > 0 {
		p.notes.add(s.Notes...)
	}
	return s, errors.Join(errs...)
}

// take adds what was found of one peer.
func (s *sights) take(found transport.Survey, ports []lane.Port) {
	peer := found.Peer.String()
	name := func(w path.Path) sight {
		return sight{Port: PortName(ports[w.Local].Now()), Peer: peer, PeerPort: PortName(lane.PeerPort(found.Ports[w.Remote]))}
	}
	for _, w := range found.RDMA {
		s.RDMA = append(s.RDMA, name(w))
	}
	for _, w := range found.TCP {
		s.TCP = append(s.TCP, name(w))
	}
	for _, f := range found.Failed {
		there := lane.PeerPort(f.Remote)
		s.Failed = append(s.Failed, sight{Port: PortName(f.Local.Now()), Peer: peer, PeerPort: PortName(there), Why: strings.ReplaceAll(f.Reason(), "\n", "; ")})
	}
	for _, err := range found.Errs {
		s.Notes = append(s.Notes, fault.OneLine(err))
	}
}

// PortName is what a port is called: by its interface, or as device:number where there is none.
func PortName(p *topology.Port) string { return cmp.Or(p.Netdev, p.Outside, p.Short()) }

// notes are warnings of a transport, for people, each once.
type notes struct {
	mu   sync.Mutex
	all  []string
	said map[string]bool
}

func (n *notes) add(lines ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, line := range lines {
		if !n.said[line] {
			if n.said == nil {
				n.said = map[string]bool{}
			}
			n.said[line] = true
			n.all = append(n.all, line)
		}
	}
}

func (n *notes) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.all
	n.all = nil
	return all
}

// warnings is a log of which warnings become notes.
type warnings struct{ to *notes }

func (w warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (w warnings) WithAttrs([]slog.Attr) slog.Handler           { return w }
func (w warnings) WithGroup(string) slog.Handler                { return w }
func (w warnings) Handle(_ context.Context, r slog.Record) error {
	text := []string{r.Message}
	if strings.HasPrefix(r.Message, discovery.Refused) {
		text = []string{"neighbour discovery"}
	}
	r.Attrs(func(a slog.Attr) bool {
		if text[0] != r.Message && a.Key != "interface" && a.Key != "error" {
			return true // of a warning for each packet and sender
		}
		text = append(text, fmt.Sprintf("%s %v", a.Key, a.Value))
		return true
	})
	w.to.add(strings.ReplaceAll(strings.Join(text, ", "), "\n", "; "))
	return nil
}
