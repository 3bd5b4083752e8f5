package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/hail"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/mesh"
	"ncclmesh/transport/path"
	"ncclmesh/transport/relay"
	"ncclmesh/transport/relay/engine"
)

// meet begins to answer who asks at the other ends of cables, to know the mesh, and to
// carry for others.
func (t *Transport) meet() error {
	if t.opts.Relay == RelayOff {
		return nil
	}
	t.engine = engine.New(engine.Config{Log: t.log, Clock: t.opts.Machine.Clock, Memory: int64(t.opts.RelayMemory) << 20, Counts: t.page.Relay()})
	var queuePairs relay.Maker
	if len(t.over) > 0 {
		queuePairs = t.engine
	}
	t.relay = relay.New(relay.Config{
		Log: t.log, Process: t.process, Node: t.node, Ports: t.ports, GIDs: t.opts.GIDs, Data: t.data, Verbs: queuePairs,
		Silence: t.env.Scaled(t.opts.LaneWait), TimeScale: t.opts.TimeScale, Random: t.opts.Machine.Random, Clock: t.opts.Machine.Clock, Context: t.ctx, Worked: t.tidy.worked,
		Neighbour: t.neighbour, PortsOf: func(s *control.Session) []handshake.Port { return t.paths.PortsOf(s) },
		Refuse: t.retired, Changed: t.relayed, Counts: t.page.Relay(),
	})
	t.mesh = mesh.New(mesh.Config{
		Own: func() handshake.MapNode {
			return handshake.MapNode{Process: t.process, Node: t.node, Hostname: t.host, Dedicated: t.opts.Dedicated}
		},
		Ports: t.meshPorts, Hail: hailer{t}, Known: func(p handshake.ProcessID) bool { return t.dialled(p) != nil },
		Session: func(ctx context.Context, n mesh.Neighbour) (mesh.Session, error) {
			s, err := t.sessionWith(ctx, n)
			if err != nil {
				return nil, err // not a session that is no nil
			}
			return s, nil
		},
		Cable:      func(s mesh.Session) string { return s.(*control.Session).Cable() },
		Background: t.background, Context: t.ctx, TimeScale: t.opts.TimeScale, Random: t.opts.Machine.Random, Clock: t.opts.Machine.Clock, Log: t.log,
	})
	var err error
	t.hail, err = hail.New(hail.Config{
		Process: t.process, Node: t.node, ControlPort: t.ep.Port(), Dedicated: t.opts.Dedicated, Key: []byte(t.opts.Key),
		PortRange: t.opts.PortRange, Network: t.opts.Machine.Network, Ports: t.hailed, Heard: t.mesh.Heard, TimeScale: t.opts.TimeScale, Random: t.opts.Machine.Random, Clock: t.opts.Machine.Clock, Log: t.log,
	})
	t.met.Store(err == nil)
	return err
}

// hailer is the hailing, to the map, which is made before it.
type hailer struct{ t *Transport }

func (h hailer) Hail()                        { h.t.hail.Hail() }
func (h hailer) Done() <-chan struct{}        { return h.t.hail.Done() }
func (h hailer) Neighbours() []hail.Neighbour { return h.t.hail.Neighbours() }

// part ends circuits, own and others'.
func (t *Transport) part() error {
	if t.relay == nil {
		return nil
	}
	return errors.Join(t.relay.Close(), t.engine.Close())
}

// others reports whether another node than a session's peer has been heard of.
func (t *Transport) others(s *control.Session) bool {
	return slices.ContainsFunc(t.hail.Neighbours(), func(n hail.Neighbour) bool { return n.Node != s.Peer().Node })
}

// ends are who answers at the other ends of cables, by interface, in view of a session's peer. It asks there, and waits for
// answers for a moment: for one at each cable, and for as long again as others need who were asked at the same time. If it
// is thorough it waits as long as somebody is asked.
func (t *Transport) ends(s *control.Session, thorough bool) map[string]path.End {
	if t.hail == nil {
		return nil
	}
	asked := t.hailed()
	if len(asked) == 0 {
		return nil
	}
	t.hail.Hail()
	over, look := t.hail.Done(), t.env.Clock.NewTicker(t.env.Scaled(heardEvery))
	defer look.Stop()
	late := t.env.Clock.NewTimer(t.env.Scaled(heardSoon))
	defer late.Stop()
	for waits, all := true, false; ; {
		var switches []string
		for _, port := range t.hail.Switches() {
			switches = append(switches, t.ports[port].Now().Netdev)
		}
		at := endsOf(t.hail.Neighbours(), switches, s.Peer().Node)
		before := all
		all = !slices.ContainsFunc(asked, func(p hail.Port) bool { return at[p.Netdev] == path.EndUnknown })
		if !waits || all && before {
			return at
		}
		select {
		case <-look.C:
		case <-over:
			waits = false
		case <-late.C:
			waits = thorough
		case <-t.ctx.Done():
			return nil
		}
	}
}

// endsOf are who is at the other ends of interfaces, by name, in view of a peer's node, given who has answered there and at
// which interfaces more have than are named.
func endsOf(answered []hail.Neighbour, switches []string, peer handshake.NodeID) map[string]path.End {
	first, at := map[string]handshake.NodeID{}, map[string]path.End{}
	for _, n := range answered {
		node, again := first[n.Name]
		switch {
		case again && node != n.Node:
			at[n.Name] = path.EndSeveral
		case again:
		case n.Node == peer:
			first[n.Name], at[n.Name] = n.Node, path.EndPeer
		default:
			first[n.Name], at[n.Name] = n.Node, path.EndOther
		}
	}
	for _, name := range switches {
		at[name] = path.EndSeveral
	}
	return at
}

// hailed are the ports that cables may be at: those of RDMA, and interfaces that are no
// way to other networks, unless the user says that they are the mesh.
func (t *Transport) hailed() (all []hail.Port) {
	for _, p := range t.ports {
		now := p.Now()
		rdma := p.Kind() == lane.Verbs
		mesh := rdma || t.opts.LaneIfs.Named() || t.opts.Key != "" || !now.Default && !(t.opts.Interfaces.Named() && t.opts.Interfaces.Match(now.Netdev))
		again := slices.ContainsFunc(all, func(h hail.Port) bool { return h.Netdev == now.Netdev }) // its interface is a port of its own too
		if mesh && now.Netdev != "" && now.Carrier && now.Usable() && !again {
			all = append(all, hail.Port{Index: p.Index(), Netdev: now.Netdev, RDMA: rdma})
		}
	}
	return all
}

// isCable reports whether an interface is one of those.
func (t *Transport) isCable(netdev string) bool {
	return slices.ContainsFunc(t.hailed(), func(p hail.Port) bool { return p.Netdev == netdev })
}

// meshPorts are those, as the map has them.
func (t *Transport) meshPorts() (all []mesh.Port) {
	for _, h := range t.hailed() {
		all = append(all, mesh.Port{Index: h.Index, Name: h.Netdev, Mbps: uint32(t.ports[h.Index].Now().Mbps()), RDMA: h.RDMA})
	}
	return all
}

// neighbour is the session with a process at the other end of a port's cable. Who is not known there, as
// after a port has changed or when it is of a later job, is asked for: whoever wants a circuit knows of it.
func (t *Transport) neighbour(ctx context.Context, process handshake.ProcessID, port uint8) (*control.Session, error) {
	at := t.ports[port].Now()
	heard := func() (hail.Neighbour, bool) {
		all := t.hail.Neighbours()
		i := slices.IndexFunc(all, func(n hail.Neighbour) bool { return n.Process == process && n.Name == at.Netdev })
		if i < 0 {
			return hail.Neighbour{}, false
		}
		return all[i], true
	}
	n, ok := heard()
	if !ok {
		t.hail.Lacks()
		t.hail.Hail()
	}
	look := t.env.Clock.NewTicker(t.env.Scaled(heardEvery))
	defer look.Stop()
	for over := t.hail.Done(); !ok; {
		select {
		case <-look.C:
			n, ok = heard()
		case <-over:
			if n, ok = heard(); !ok {
				return nil, fmt.Errorf("%w: process %.8v does not answer at the other end of %s", fault.ErrUnreachable, process, at.Short())
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: process %.8v has not answered at the other end of %s: %w", fault.ErrUnreachable, process, at.Short(), context.Cause(ctx))
		}
	}
	return t.sessionWith(ctx, n)
}

const (
	heardEvery = 25 * time.Millisecond  // between two looks whether a neighbour that is waited for has answered, before TimeScale
	heardSoon  = 250 * time.Millisecond // for those who answer without being waited for
)

// sessionWith is the session with a neighbour: the one that its handle has made, or one of
// neighbours.
func (t *Transport) sessionWith(ctx context.Context, n hail.Neighbour) (*control.Session, error) {
	if s := t.dialled(n.Process); s != nil {
		return s, nil
	}
	s, err := t.ep.DialNeighbour(ctx, n.Process, handshake.HailSecret([]byte(t.opts.Key)), n.Control, n.Name)
	if err != nil {
		t.hail.Forget(n.Process)
	}
	return s, err
}

// dialled is the session with a process that its handle has made, or nil.
func (t *Transport) dialled(process handshake.ProcessID) *control.Session {
	for _, s := range t.ep.Sessions() {
		if s.Dialled() && !s.Neighbour() && s.Alive() && s.Peer().Process == process {
			return s
		}
	}
	return nil
}

// routes are the ways to a peer's node through others.
func (t *Transport) routes(ctx context.Context, s *control.Session, rdma bool) ([]path.Route, error) {
	found, err := t.mesh.Routes(ctx, s.Peer().Node, rdma)
	var all []path.Route
	for _, r := range found {
		all = append(all, path.Route{Port: r.Port, Peer: r.PeerName, Mbps: r.Mbps, Cables: r.Cables, Spare: r.Spare, Through: &lane.Route{Via: r.Via, Names: r.Names}})
	}
	if at := t.hail.Foreign(); err != nil && len(at) > 0 {
		err = fmt.Errorf("%w. A node at %s has another NCCL_MESH_KEY, or none: all nodes must have the same", err, strings.Join(at, ", "))
	}
	return all, err
}

// circuits are what lanes ask relays through. Ports are made before it.
type circuits struct{ t *Transport }

func (c circuits) Carry(ctx context.Context, port uint8, m *handshake.Carry, dropped, silent func(error)) (*lane.OpenedCircuit, error) {
	if c.t.relay == nil {
		return nil, path.ErrNoRelay
	}
	return c.t.relay.Carry(ctx, port, m, dropped, silent)
}

func (c circuits) Expect(token uint64, arrive lane.Arrive, dropped func(error)) error {
	if c.t.relay == nil {
		return path.ErrNoRelay
	}
	return c.t.relay.Expect(token, arrive, dropped)
}

func (c circuits) Cancel(token uint64) {
	if c.t.relay != nil {
		c.t.relay.Cancel(token)
	}
}

// circuitPort is the port for circuits of one for queue pairs; others are as they are.
func (t *Transport) circuitPort(p lane.Port) lane.Port {
	if c := t.over[p]; c != nil {
		return c
	}
	return p
}
