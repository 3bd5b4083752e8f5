package transport

import (
	"context"
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/hail"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/path"
	"ncclmesh/transport/topology"
)

// Survey is what was found of the direct ways to another process.
type Survey struct {
	Peer   handshake.NodeID
	Ports  []handshake.Port // the peer's
	RDMA   []path.Path      // that are proved, whatever else works
	TCP    []path.Path
	Failed []conn.LaneFailure // what did not work
	Errs   []error            // what kept a kind from being tried at all
}

// Survey tries every direct way to the process that h describes, over RDMA and over TCP.
// It blocks, for as long as a connection's set-up may.
func (t *Transport) Survey(ctx context.Context, h handshake.Handle) (s Survey, err error) {
	sess, err := t.ep.Dial(ctx, h)
	if err != nil {
		return s, fmt.Errorf("%w: %w", kindOf(err), err)
	}
	s.Peer, s.Ports = sess.Peer().Node, t.paths.PortsOf(sess)
	for _, k := range []struct {
		kind lane.Kind
		ways *[]path.Path
	}{{lane.Verbs, &s.RDMA}, {lane.TCP, &s.TCP}} {
		ways, failed, err := t.paths.Survey(sess, k.kind)
		*k.ways, s.Failed = ways, append(s.Failed, failed...)
		if err != nil {
			s.Errs = append(s.Errs, err)
		}
	}
	return s, nil
}

// Cables are the interfaces that may have a cable.
func (t *Transport) Cables() (names []string) {
	for _, p := range t.hailed() {
		names = append(names, p.Netdev)
	}
	return names
}

// Neighbours asks there who is at the other end, and returns who has answered. It blocks for
// some seconds.
func (t *Transport) Neighbours(ctx context.Context) ([]hail.Neighbour, error) {
	if t.hail == nil {
		return nil, path.ErrNoRelay
	}
	t.hail.Hail()
	select {
	case <-t.hail.Done():
		return t.hail.Neighbours(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Ports are this node's, as peers are told of them.
func (t *Transport) Ports() []lane.Port { return t.ports }

// GPUs returns where the machine's GPUs are that NCCL can use.
func (t *Transport) GPUs() []topology.Slot { return t.opts.Machine.Source.GPUs() }

// Node is who this is, to its peers.
func (t *Transport) Node() handshake.NodeID { return t.node }

// DialOver is Dial over those ways alone, which a Survey of the same peer has proved.
func (t *Transport) DialOver(h handshake.Handle, ways []path.Path) *Dialing {
	return t.dial(h, func(ctx context.Context, c *conn.Conn) ([]lane.Spec, error) {
		plan := t.paths.Over(ways)
		if len(plan) == 0 {
			return nil, fmt.Errorf("%w: %v: no path to dial over", fault.ErrUsage, c)
		}
		c.Confine()
		return plan, nil
	})
}
