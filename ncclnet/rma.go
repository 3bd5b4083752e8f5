package ncclnet

import (
	"errors"
	"fmt"

	"ncclmesh/ncclnet/rma"
	"ncclmesh/transport"
	"ncclmesh/transport/fault"
)

// NCCL_NET_DEVICE_GIN_PROXY is the device type of NCCL's RMA interface: a plugin that does GPU-initiated networking for NCCL's proxy thread.
const NCCL_NET_DEVICE_GIN_PROXY = 2

// rmaInterface is the version of the network interface that the NCCLs with an RMA interface use.
const rmaInterface = 12

// nccl2_30_7 is the first NCCL that uses the RMA interface of a plugin. 2.30.3 and 2.30.4 look for it and never initialise it
// (NVIDIA/nccl#2156).
const nccl2_30_7 = 23007

// An rmaContext is what one init of the RMA interface has opened. NCCL calls that init twice for a communicator: for its host RMA, and for
// its GIN proxy.
type rmaContext struct {
	*Reference
	logger  Logger
	devices int
	net     *transport.Transport
}

// An rmaListen is a listener for all ranks of a group.
type rmaListen struct {
	ctx      Handle
	listener *transport.Listener
}

// An rmaGroup is a group with its failures, in the context of its listener.
type rmaGroup struct {
	*rma.Group
	ctx     Handle
	handle  Handle
	failure failure
}

// An rmaSeries is NCCL's rmaCtx: a context of a group, which is a number of series of operations. An rmaContext is what init has opened.
type rmaSeries struct {
	*rma.Context
	group *rmaGroup
}

// An rmaWindow is a window of a group.
type rmaWindow struct {
	*rma.Window
	group Handle
}

// offersRMA reports whether one-sided communication is offered to NCCL: where GPU memory is, because NCCL keeps the words that signals
// change in it.
func (m *mesh) offersRMA() bool { return m.offer.CUDA || m.offer.DMABuf }

// RMAInit opens a context of the RMA interface. Where it is not offered the result is NULL, which holds nothing: NCCL then asks for the
// number of devices and never calls finalize. version is NCCL's, or 0 if it is not known.
func (n *Net) RMAInit(logger Logger, version int) (Handle, Result) {
	h, err := n.rmaInit(logger, version)
	return h, n.resultTo(n.process.logTo(logger), 0, "RMA init", err)
}

func (n *Net) rmaInit(logger Logger, version int) (Handle, error) {
	ref, err := n.process.Acquire(logger, -1)
	if err != nil {
		return 0, err
	}
	if !ref.offersRMA() {
		n.process.logTo(logger).Debug("no one-sided communication (RMA, GIN) over the mesh, because that takes GPU memory which adapters can reach: " + ref.offer.Line)
		return 0, ref.Release()
	}
	t, ok := ref.net.(meshNetwork)
	if !ok {
		return 0, errors.Join(fmt.Errorf("%w: the network has no transport", fault.ErrInternal), ref.Release())
	}
	vDevices := n.show(ref.mesh, Caller{Interface: rmaInterface, Version: version})
	h, err := n.rmaContexts.put(&rmaContext{ref, logger, len(vDevices), t.Transport})
	if err != nil {
		return 0, errors.Join(err, ref.Release())
	}
	if n.rmaOffer.Swap(ref.mesh) != ref.mesh { // once, not for each communicator
		n.log.Info(describeRMA(n.process.host.Getenv))
	}
	return h, nil
}

// describeRMA returns the log line of one-sided communication that is offered.
func describeRMA(getenv func(string) string) string {
	line := "one-sided communication (ncclPutSignal, GPU-initiated networking by NCCL's proxy) can use the mesh"
	if off, _ := oneSidedSwitches(getenv); len(off) > 0 {
		line += "; " + keepFromIt(off)
	}
	return line
}

// RMAFinalize closes a context of the RMA interface, and all that is still open in it. It accepts NULL, and a context that was finalized
// before: see table.close.
func (n *Net) RMAFinalize(h Handle) Result {
	c, err := n.rmaContexts.close(h)
	if c == nil {
		return n.result("RMA finalize", err)
	}
	for _, l := range n.rmaListens.take(func(l *rmaListen) bool { return l.ctx == h }) {
		err = errors.Join(err, l.listener.Close())
	}
	for _, g := range n.rmaGroups.take(func(g *rmaGroup) bool { return g.ctx == h }) {
		err = errors.Join(err, n.closeGroup(g))
	}
	return n.resultTo(n.process.logTo(c.logger), 0, "RMA finalize", errors.Join(err, c.Release()))
}

// RMADevices returns the number of devices for one-sided communication: those of Devices, or none.
func (n *Net) RMADevices() (int, Result) {
	m := n.process.mesh.Load()
	if m == nil || !m.offersRMA() {
		return 0, ncclSuccess
	}
	return n.Devices()
}

// RMAProperties returns the properties of a device for one-sided communication. They are those of Properties, because NCCL takes the two
// for one device of its topology, except for the type.
func (n *Net) RMAProperties(dev int) (Properties, Result) {
	p, r := n.Properties(dev)
	p.NetDeviceType = NCCL_NET_DEVICE_GIN_PROXY
	return p, r
}

// Compile-time check: NCCL needs a power of two for the depth of its GIN queues.
const _ = uint(0 - MaxRecvs&(MaxRecvs-1))

// rmaContext returns the context of a handle.
func (n *Net) rmaContext(h Handle) (*rmaContext, error) {
	c, err := n.rmaContexts.find(h)
	if err != nil {
		return nil, fmt.Errorf("one-sided communication: %w", err)
	}
	return c, nil
}
