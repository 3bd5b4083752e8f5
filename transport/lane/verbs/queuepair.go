package verbs

import (
	"context"
	"errors"
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/lane"
)

// Queue sizes, in work requests.
const (
	sendSlack   = 2 * lane.Window                        // send queue of a receiver's queue pair
	recvDepth   = lane.Window + lane.Resends + recvBatch // receives of every queue pair of a receiver
	recvBatch   = 64                                     // most receives posted in one chain
	grantSignal = 64                                     // one grant in this many is signalled
	inlineBytes = lane.EntrySize                         // a single grant fits
	probeDepth  = 4                                      // send queue of a connection that only validates paths; it posts one probe packet
)

// Work request ids: kind 8 | lane 8 | request 16 | credits 16 | part 16. The request of a grant that
// is sent again is the grant's slot.
const (
	wrPart       = 1
	wrGrant      = 2
	wrProbe      = 3
	wrRecv       = 4
	wrMarker     = 5
	wrGrantAgain = 6
)

func wrID(kind, lane uint8, request, credits int) uint64 {
	return uint64(kind)<<56 | uint64(lane)<<48 | uint64(uint16(request))<<32 | uint64(uint16(credits))<<16
}

// queuePair carries a lane over a reliable connection of verbs.
type queuePair struct {
	lane   *lane.Lane
	domain *domain
	place  int // index of the peer's port among the peer's domains
	mem    *ibv.Memory
	qp     *ibv.QP
	psn    uint32
	ece    handshake.ECE // options that this half offers or, once connected, has
	token  uint64        // the value of the peer's probe packet

	probe          probeState // state of this side's probe write
	probeErr       error      // the error of a failed probe write
	chunk          uint32     // bytes of one write, at most
	credits        int        // free send-queue entries
	unsignalled    int        // grants since the last signalled one
	posted         int        // receives posted and not polled
	markersPosted  int        // markers posted
	markersFlushed int        // markers flushed

	wr   []ibv.SendWR
	sge  []ibv.SGE
	recv []ibv.RecvWR
}

type probeState uint8

const (
	probeNone   probeState = 0
	probePosted probeState = 1
	probeDone   probeState = 2
	probeFailed probeState = 3
)

// chunkOf returns the most bytes of one write between two ports: the smaller of their max_msg_sz, rounded down
// to a multiple of lane.PartAlign.
func chunkOf(a, b uint32) uint32 {
	c := min(a, b, lane.MaxChunk)
	if c == 0 {
		c = lane.MaxChunk
	}
	return max(c&^(lane.PartAlign-1), lane.PartAlign)
}

// mostWrites returns the number of writes of a part of 1 GiB, NCCL's largest message, limited to
// lane.MaxWrites.
func mostWrites(chunk uint32) int {
	return min((lane.MaxChunk+int(chunk)-1)/int(chunk), lane.MaxWrites)
}

// newQueuePair creates the queue pair that carries l, in state INIT.
func newQueuePair(d *domain, l *lane.Lane) (_ *queuePair, err error) {
	q := &queuePair{lane: l, domain: d}
	q.chunk = chunkOf(d.port.attr.Load().MaxMsgSz, l.Peer.MaxMsgSize)
	defer func() {
		if err != nil {
			err = errors.Join(err, q.Close())
		}
	}()
	if q.mem, err = ibv.Alloc(d.writes*(128+16) + recvBatch*32 + 3*64); err != nil {
		return nil, err
	}
	if err := q.create(); err != nil {
		return nil, err
	}
	q.psn, q.token = d.port.PSN(l.Name()), d.port.Token(l.Name())
	if q.ece, err = d.port.Init(q.qp, ibv.IBV_ACCESS_LOCAL_WRITE|ibv.IBV_ACCESS_REMOTE_WRITE); err != nil {
		return nil, err
	}
	q.wr = ibv.Carve[ibv.SendWR](q.mem, d.writes)
	q.sge = ibv.Carve[ibv.SGE](q.mem, d.writes)
	if !l.Conn.Sending && !l.Conn.Probe {
		q.chainReceives(ibv.Carve[ibv.RecvWR](q.mem, recvBatch))
		if err := q.fillReceives(); err != nil {
			return nil, err
		}
	}
	d.port.Watch(q.qp.Num(), q.lane)
	return q, nil
}

// create creates the verbs queue pair with queues of the lengths that its connection needs.
func (q *queuePair) create() (err error) {
	d, c := q.domain, q.lane.Conn
	init := ibv.QPInit{SendCQ: d.cq, RecvCQ: d.cq, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: inlineBytes, Type: ibv.IBV_QPT_RC}
	switch {
	case c.Probe:
		q.credits, init.MaxRecvWR = probeDepth, 1
	case c.Sending:
		q.credits = min(2*(lane.Window+d.writes), d.port.maxQPWR-1)
		init.MaxRecvWR = 1
	default:
		q.credits = min(sendSlack, d.port.maxQPWR-1)
		if d.port.maxQPWR < recvDepth {
			return fmt.Errorf("%v takes %d receives in a queue and %d are needed", d.port, d.port.maxQPWR, recvDepth)
		}
		init.MaxRecvWR = recvDepth
	}
	init.MaxSendWR = uint32(q.credits + 1) // one more for the marker
	q.qp, err = d.port.pd.CreateQP(init)
	if err != nil {
		init.MaxInline = 0 // a device without inline data refuses the first call
		var again error
		if q.qp, again = d.port.pd.CreateQP(init); again != nil {
			return err
		}
	}
	return nil
}

func (q *queuePair) Offer(h *handshake.Lane) {
	q.domain.port.Half(h, q.lane.From, q.qp.Num(), q.psn)
	h.Token, h.ECE = q.token, q.ece
}

// Connect takes the queue pair to RTS. The transition to RTR may block in the kernel for a second while it
// resolves the peer's address; for that reason lanes are connected in parallel and never on a thread of NCCL.
func (q *queuePair) Connect(_ context.Context, remote handshake.Lane, place int) (err error) {
	q.place = place
	q.chunk = chunkOf(q.domain.port.attr.Load().MaxMsgSz, remote.MaxMsg)
	q.ece, err = q.domain.port.Join(q.qp, Link{From: q.lane.From, Remote: remote, PSN: q.psn, ECE: q.ece, Probe: q.lane.Conn.Probe, Begun: 1, Answered: 1})
	return err
}

// LocalError returns nil, because Connect returns local resource errors.
func (q *queuePair) LocalError() error { return nil }

// Number returns the queue pair number.
func (q *queuePair) Number() int { return int(q.qp.Num()) }

func (q *queuePair) Terms() string {
	attr, ece := q.domain.port.attr.Load(), ""
	if q.ece.Options != 0 {
		ece = fmt.Sprintf(" ece %#x", q.ece.Options)
	}
	mtu := mtuBytes(min(attr.ActiveMTU, uint32(q.lane.Remote.MTU)))
	if attr.LinkLayer == ibv.IBV_LINK_LAYER_INFINIBAND {
		return fmt.Sprintf("mtu %d lid %d%s", mtu, q.lane.Remote.LID, ece)
	}
	return fmt.Sprintf("mtu %d gid %d%s", mtu, q.lane.From.Index, ece)
}

// Remark returns a warning if the two ends of a cable have different MTUs.
func (q *queuePair) Remark() string {
	p, s := q.domain.port, q.lane.Conn.Session
	ours, theirs := p.attr.Load().ActiveMTU, uint32(q.lane.Remote.MTU)
	if ours == theirs {
		return ""
	}
	return fmt.Sprintf("MTU differs between the ends of a cable: %v on %s has %d, %s on %s has %d; using %d. Set the same MTU at both ends",
		p, s.LocalName(), mtuBytes(ours), lane.PeerPort(q.lane.Peer), s.Name(), mtuBytes(theirs), mtuBytes(min(ours, theirs)))
}

// mtuBytes converts an ibv_mtu to bytes.
func mtuBytes(mtu uint32) int { return 128 << mtu }

// PostProbe writes the peer's token into the peer's control ring. Its arrival and its completion validate the
// path, because it is a real packet on the lane.
func (q *queuePair) PostProbe() error {
	c := q.lane.Conn
	c.Ring.Out[q.lane.Index] = q.lane.Remote.Token
	q.sge[0] = ibv.SGE{Addr: uint64(ibv.AddrOf(&c.Ring.Out[q.lane.Index])), Length: 8, LKey: q.domain.ringMR.LKey()}
	q.wr[0] = ibv.SendWR{
		WRID: wrID(wrProbe, q.lane.Index, 0, 1), SGList: ibv.AddrOf(&q.sge[0]), NumSGE: 1,
		Opcode: ibv.IBV_WR_RDMA_WRITE, SendFlags: ibv.IBV_SEND_SIGNALED,
		RemoteAddr: c.PeerBase + lane.ProbeOffset(q.lane.Index), RKey: c.PeerKeys[q.place],
	}
	if _, err := q.qp.PostSend(&q.wr[0]); err != nil {
		return err
	}
	q.probe = probePosted
	q.credits--
	q.domain.sends++
	return nil
}

func (q *queuePair) Probed() (sent, came bool, err error) {
	q.domain.poll()
	if q.probe == probeFailed {
		return false, false, q.probeErr
	}
	return q.probe == probeDone, lane.Acquire(&q.lane.Conn.Ring.In[q.lane.Index]) == q.token, nil
}

// Stop takes the queue pair to ERR: the device then sends and accepts nothing more and flushes all posted
// requests. A marker request shows when the send queue has been flushed, because successful unsignalled
// requests give no completion. Posted receives are counted instead; a marker receive might never complete,
// because rxe's provider does not tell the kernel about a receive that is posted in ERR.
func (q *queuePair) Stop() error {
	if err := q.qp.Modify(&ibv.QPAttr{QPState: ibv.IBV_QPS_ERR}, ibv.IBV_QP_STATE); err != nil {
		return err
	}
	q.wr[0] = ibv.SendWR{WRID: wrID(wrMarker, q.lane.Index, 0, 0), Opcode: ibv.IBV_WR_RDMA_WRITE, SendFlags: ibv.IBV_SEND_SIGNALED}
	if _, err := q.qp.PostSend(&q.wr[0]); err != nil {
		return err
	}
	q.markersPosted++
	return nil
}

// Drained polls and reports whether all posted requests have been flushed.
func (q *queuePair) Drained() bool {
	q.domain.poll()
	return q.markersFlushed == q.markersPosted && q.posted == 0
}

// Close destroys the queue pair.
func (q *queuePair) Close() error {
	if q.qp != nil {
		q.domain.port.Unwatch(q.qp.Num(), q.lane)
		if err := q.qp.Close(); err != nil {
			return err
		}
		if d := q.domain; d.qps[q.lane.Index] == q {
			d.qps[q.lane.Index] = nil
			d.undrained = d.undrained || q.markersFlushed != q.markersPosted || q.markersPosted == 0 || q.posted > 0
		}
	}
	if q.mem == nil {
		return nil
	}
	m := q.mem
	q.mem = nil
	return m.Free()
}
