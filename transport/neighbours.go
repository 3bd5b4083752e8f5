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
	"ncclmesh/transport/discovery"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/path"
	"ncclmesh/transport/relay"
	"ncclmesh/transport/relay/engine"
	"ncclmesh/transport/routing"
)

// startOverlay starts relaying, the map of the mesh, and neighbour discovery, unless relaying is off.
func (t *Transport) startOverlay() error {
	if t.opts.Relay == RelayOff {
		return nil
	}
	t.engine = engine.New(engine.Config{Log: t.log, Clock: t.opts.Machine.Clock, Memory: int64(t.opts.RelayMemory) << 20, Counts: t.page.Relay()})
	var queuePairs relay.Maker
	if len(t.circuitPorts) > 0 {
		queuePairs = t.engine
	}
	t.relay = relay.New(relay.Config{
		Log: t.log, Process: t.process, Node: t.node, Ports: t.ports, GIDs: t.opts.GIDs, Data: t.data, Verbs: queuePairs,
		Silence: t.env.Scaled(t.opts.LaneWait), TimeScale: t.opts.TimeScale, Random: t.opts.Machine.Random, Clock: t.opts.Machine.Clock, Context: t.ctx, NoteWork: t.idleGC.noteWork,
		Neighbour: t.neighbour, PortsOf: func(s *control.Session) []handshake.Port { return t.paths.PortsOf(s) },
		Refuse: t.refuseCircuits, Changed: t.noteRelayChange, Counts: t.page.Relay(),
	})
	t.routing = routing.New(routing.Config{
		Own: func() handshake.MapNode {
			return handshake.MapNode{Process: t.process, Node: t.node, Hostname: t.host, Dedicated: t.opts.Dedicated}
		},
		Ports: t.mapPorts, Discovery: overlayDiscovery{t}, Known: func(p handshake.ProcessID) bool { return t.dialled(p) != nil },
		Session: func(ctx context.Context, n routing.Neighbour) (routing.Session, error) {
			s, err := t.sessionWith(ctx, n)
			if err != nil {
				return nil, err // returning s would make a non-nil interface that holds a nil *Session
			}
			return s, nil
		},
		Cable:      func(s routing.Session) string { return s.(*control.Session).Cable() },
		Background: t.background, Context: t.ctx, TimeScale: t.opts.TimeScale, Random: t.opts.Machine.Random, Clock: t.opts.Machine.Clock, Log: t.log,
	})
	var err error
	t.discovery, err = discovery.New(discovery.Config{
		Process: t.process, Node: t.node, ControlPort: t.ep.Port(), Dedicated: t.opts.Dedicated, Key: []byte(t.opts.Key),
		PortRange: t.opts.PortRange, Network: t.opts.Machine.Network, Ports: t.meshPorts, OnNeighbour: t.routing.NeighbourFound, TimeScale: t.opts.TimeScale, Random: t.opts.Machine.Random, Clock: t.opts.Machine.Clock, Log: t.log,
	})
	t.overlayUp.Store(err == nil)
	return err
}

// overlayDiscovery passes the map's calls to neighbour discovery, which is made after the map.
type overlayDiscovery struct{ t *Transport }

func (h overlayDiscovery) Solicit()                          { h.t.discovery.Solicit() }
func (h overlayDiscovery) Done() <-chan struct{}             { return h.t.discovery.Done() }
func (h overlayDiscovery) Neighbours() []discovery.Neighbour { return h.t.discovery.Neighbours() }

// stopOverlay ends all circuits, those of this process and those relayed for others.
func (t *Transport) stopOverlay() error {
	if t.relay == nil {
		return nil
	}
	return errors.Join(t.relay.Close(), t.engine.Close())
}

// otherNodes reports whether neighbour discovery has found a node other than the session's peer.
func (t *Transport) otherNodes(s *control.Session) bool {
	return slices.ContainsFunc(t.discovery.Neighbours(), func(n discovery.Neighbour) bool { return n.Node != s.Peer().Node })
}

// linkEnds returns what is at the other ends of the cables, by interface, relative to a session's peer. It starts a
// round of discovery and waits for replies: until every cable has one, and then for one more tick, so that replies to
// the same query arrive too, but not longer than neighbourWait. If thorough is true, it waits until the round ends.
func (t *Transport) linkEnds(s *control.Session, thorough bool) map[string]path.End {
	if t.discovery == nil {
		return nil
	}
	ports := t.meshPorts()
	if len(ports) == 0 {
		return nil
	}
	t.discovery.Solicit()
	over, look := t.discovery.Done(), t.env.Clock.NewTicker(t.env.Scaled(neighbourPoll))
	defer look.Stop()
	late := t.env.Clock.NewTimer(t.env.Scaled(neighbourWait))
	defer late.Stop()
	for waits, all := true, false; ; {
		var switches []string
		for _, port := range t.discovery.Switches() {
			switches = append(switches, t.ports[port].Now().Netdev)
		}
		at := classifyEnds(t.discovery.Neighbours(), switches, s.Peer().Node)
		before := all
		all = !slices.ContainsFunc(ports, func(p discovery.Port) bool { return at[p.Netdev] == path.EndUnknown })
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

// classifyEnds returns what is at the other ends of interfaces, by name, relative to a peer's node. answered are the
// discovered neighbours, and switches the interfaces with too many of them.
func classifyEnds(answered []discovery.Neighbour, switches []string, peer handshake.NodeID) map[string]path.End {
	first, at := map[string]handshake.NodeID{}, map[string]path.End{}
	for _, n := range answered {
		node, known := first[n.Name]
		switch {
		case known && node != n.Node:
			at[n.Name] = path.EndSeveral
		case known:
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

// meshPorts returns the ports that may have a cable: RDMA ports, and interfaces without a default route, or all
// interfaces if the user declares them to be the mesh.
func (t *Transport) meshPorts() (all []discovery.Port) {
	for _, p := range t.ports {
		now := p.Now()
		rdma := p.Kind() == lane.Verbs
		mesh := rdma || t.opts.LaneIfs.Named() || t.opts.Key != "" || !now.Default && !(t.opts.Interfaces.Named() && t.opts.Interfaces.Match(now.Netdev))
		known := slices.ContainsFunc(all, func(h discovery.Port) bool { return h.Netdev == now.Netdev }) // the interface of an RDMA port is a TCP port too
		if mesh && now.Netdev != "" && now.Carrier && now.Usable() && !known {
			all = append(all, discovery.Port{Index: p.Index(), Netdev: now.Netdev, RDMA: rdma})
		}
	}
	return all
}

// isCable reports whether an interface is one of a port that may have a cable.
func (t *Transport) isCable(netdev string) bool {
	return slices.ContainsFunc(t.meshPorts(), func(p discovery.Port) bool { return p.Netdev == netdev })
}

// mapPorts returns the ports that may have a cable, in the form that the map needs.
func (t *Transport) mapPorts() (all []routing.Port) {
	for _, h := range t.meshPorts() {
		all = append(all, routing.Port{Index: h.Index, Name: h.Netdev, Mbps: uint32(t.ports[h.Index].Now().Mbps()), RDMA: h.RDMA})
	}
	return all
}

// neighbour returns the session with a process at the other end of a port's cable, and dials one if needed. If the
// process is not a known neighbour, because a port has changed or its job started later, it starts discovery and waits
// for the process: the node that requests the circuit knows it.
func (t *Transport) neighbour(ctx context.Context, process handshake.ProcessID, port uint8) (*control.Session, error) {
	at := t.ports[port].Now()
	find := func() (discovery.Neighbour, bool) {
		all := t.discovery.Neighbours()
		i := slices.IndexFunc(all, func(n discovery.Neighbour) bool { return n.Process == process && n.Name == at.Netdev })
		if i < 0 {
			return discovery.Neighbour{}, false
		}
		return all[i], true
	}
	n, ok := find()
	if !ok {
		t.discovery.ExpectMore()
		t.discovery.Solicit()
	}
	look := t.env.Clock.NewTicker(t.env.Scaled(neighbourPoll))
	defer look.Stop()
	for over := t.discovery.Done(); !ok; {
		select {
		case <-look.C:
			n, ok = find()
		case <-over:
			if n, ok = find(); !ok {
				return nil, fmt.Errorf("%w: process %.8v does not answer at the other end of %s", fault.ErrUnreachable, process, at.Short())
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: process %.8v has not answered at the other end of %s: %w", fault.ErrUnreachable, process, at.Short(), context.Cause(ctx))
		}
	}
	return t.sessionWith(ctx, n)
}

const (
	neighbourPoll = 25 * time.Millisecond  // between two checks whether an expected neighbour has answered, before TimeScale
	neighbourWait = 250 * time.Millisecond // for the first reply of each cable, before TimeScale
)

// sessionWith returns a session with a neighbour: one that was dialled with the neighbour's handle, or else one over
// the cable.
func (t *Transport) sessionWith(ctx context.Context, n discovery.Neighbour) (*control.Session, error) {
	if s := t.dialled(n.Process); s != nil {
		return s, nil
	}
	s, err := t.ep.DialNeighbour(ctx, n.Process, handshake.HailSecret([]byte(t.opts.Key)), n.Control, n.Name)
	if err != nil {
		t.discovery.Forget(n.Process)
	}
	return s, err
}

// dialled returns the session with a process that was dialled with its handle, or nil.
func (t *Transport) dialled(process handshake.ProcessID) *control.Session {
	for _, s := range t.ep.Sessions() {
		if s.Dialled() && !s.Neighbour() && s.Alive() && s.Peer().Process == process {
			return s
		}
	}
	return nil
}

// routes returns the routes through relays to a peer's node.
func (t *Transport) routes(ctx context.Context, s *control.Session, rdma bool) ([]path.Route, error) {
	found, err := t.routing.Routes(ctx, s.Peer().Node, rdma)
	var all []path.Route
	for _, r := range found {
		all = append(all, path.Route{Port: r.Port, Peer: r.PeerName, Mbps: r.Mbps, Cables: r.Cables, Spare: r.Spare, Through: &lane.Route{Via: r.Via, Names: r.Names}})
	}
	if at := t.discovery.Foreign(); err != nil && len(at) > 0 {
		err = fmt.Errorf("%w. A node at %s has another NCCL_MESH_KEY, or none: all nodes must have the same", err, strings.Join(at, ", "))
	}
	return all, err
}

// circuits opens circuits for lanes. It passes calls to the relay, which is made after the ports.
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

// circuitPort returns the circuit port that belongs to a verbs port. It returns other ports unchanged.
func (t *Transport) circuitPort(p lane.Port) lane.Port {
	if c := t.circuitPorts[p]; c != nil {
		return c
	}
	return p
}
