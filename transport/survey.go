package transport

import (
	"context"
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/discovery"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/path"
	"ncclmesh/transport/topology"
)

// Survey is the result of testing the direct paths to another process.
type Survey struct {
	Peer   handshake.NodeID
	Ports  []handshake.Port // the peer's
	RDMA   []path.Path      // validated paths, whether or not the other kind works
	TCP    []path.Path
	Failed []conn.LaneFailure // paths that do not work
	Errs   []error            // reasons why a kind could not be tested at all
}

// Survey tests every direct path to the process that h describes, over RDMA and over TCP. It blocks for at most the
// time of a connection's set-up.
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

// Neighbours runs neighbour discovery on the interfaces that may have a cable, and returns the neighbours that
// answered. It blocks for some seconds.
func (t *Transport) Neighbours(ctx context.Context) ([]discovery.Neighbour, error) {
	return t.overlay.Neighbours(ctx)
}

// Ports returns this node's ports, in the order in which they are reported to peers.
func (t *Transport) Ports() []lane.Port { return t.ports }

// GPUs returns the PCI locations of the GPUs that NCCL can use.
func (t *Transport) GPUs() []topology.Slot { return t.opts.Machine.Source.GPUs() }

// Node returns this node's identifier.
func (t *Transport) Node() handshake.NodeID { return t.node }

// DialOver is Dial, but uses only paths that a Survey of the same peer has validated.
func (t *Transport) DialOver(h handshake.Handle, paths []path.Path) *Dialing {
	return t.dial(h, func(ctx context.Context, c *conn.Conn) ([]lane.Spec, error) {
		plan := t.paths.Over(paths)
		if len(plan) == 0 {
			return nil, fmt.Errorf("%w: %v: no path to dial over", fault.ErrUsage, c)
		}
		c.Confine()
		return plan, nil
	})
}
