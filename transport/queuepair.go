package transport

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/topology"
)

// Queue sizes, in work requests.
const (
	sendSlack   = 2 * window    // send queue of a receiver's queue pair
	recvDepth   = 2*window + 64 // receives of every queue pair of a receiver
	recvBatch   = 64            // receives are posted again in chains of at most this many
	grantSignal = 64            // one grant in this many is signalled
	inlineBytes = entrySize     // a single grant fits
	trialDepth  = 4             // send queue of a trial, which posts one proof
)

// Work request ids: kind 8 | lane 8 | request 16 | credits 16 | 0 16.
const (
	wrPart   = 1
	wrGrant  = 2
	wrProof  = 3
	wrRecv   = 4
	wrMarker = 5
)

func wrID(kind, lane uint8, request, credits int) uint64 {
	return uint64(kind)<<56 | uint64(lane)<<48 | uint64(uint16(request))<<32 | uint64(uint16(credits))<<16
}

// queuePair carries a lane over a reliable connection of verbs.
type queuePair struct {
	*lane
	dev      int // of conn.devs
	device   *device
	peerDev  int // of the peer's device set
	qp       *ibv.QP
	psn      uint32
	token    uint64 // what the peer writes here as its proof
	gid      ibv.GID
	gidIndex int

	proof    proof  // how far this side's proof write has come
	proofErr error  // why it failed
	chunk    uint32 // most bytes of one write
	credits  int    // free send-queue entries
	unsig    int    // grants since the last signalled one
	posted   int    // receives posted and not polled
	marked   int    // markers posted
	marks    int    // markers flushed

	wr   []ibv.SendWR
	sge  []ibv.SGE
	recv []ibv.RecvWR
}

type proof uint8

const (
	proofNone   proof = 0
	proofPosted proof = 1
	proofDone   proof = 2
	proofFailed proof = 3
)

// chunkOf is the most bytes of one write between two ports: the smaller
// max_msg_sz in whole cuts.
func chunkOf(a, b uint32) uint32 {
	c := min(a, b, maxChunk)
	if c == 0 {
		c = maxChunk
	}
	return max(c&^(partAlign-1), partAlign)
}

// mostWrites is the number of writes that the largest message of NCCL, 1 GiB,
// takes when it is one part.
func mostWrites(chunk uint32) int {
	return min((maxChunk+int(chunk)-1)/int(chunk), maxWrites)
}

// newQueuePair makes the queue pair that carries l, in INIT. writes is the most
// work requests of one part.
func newQueuePair(l *lane, dev int, gid topology.GID, writes int) (_ *queuePair, err error) {
	c, d := l.conn, l.conn.devs[dev]
	q := &queuePair{lane: l, dev: dev, device: d, gid: ibv.GID(gid.Raw), gidIndex: gid.Index}
	q.chunk = chunkOf(l.port.now().attr.MaxMsgSz, l.peer.MaxMsgSize)
	init := ibv.QPInit{SendCQ: d.cq, RecvCQ: d.cq, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: inlineBytes, Type: ibv.IBV_QPT_RC}
	switch {
	case c.trial:
		q.credits, init.MaxRecvWR = trialDepth, 1
	case c.sending:
		q.credits = min(2*(window+writes), l.port.maxQPWR)
		init.MaxRecvWR = 1
	default:
		q.credits = min(sendSlack, l.port.maxQPWR)
		if l.port.maxQPWR < recvDepth {
			return nil, fmt.Errorf("%s takes %d receives in a queue and %d are needed", l.port.String(), l.port.maxQPWR, recvDepth)
		}
		init.MaxRecvWR = recvDepth
	}
	init.MaxSendWR = uint32(q.credits)
	q.qp, err = l.port.pd.CreateQP(init)
	if err != nil {
		init.MaxInline = 0 // a device without inline data refuses it
		var again error
		if q.qp, again = l.port.pd.CreateQP(init); again != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, q.qp.Close())
		}
	}()
	var b [12]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, err
	}
	q.psn = binary.NativeEndian.Uint32(b[:]) & 0xffffff
	q.token = binary.NativeEndian.Uint64(b[4:]) | 1 // never the zero that memory starts with
	err = q.qp.Modify(&ibv.QPAttr{
		QPState:       ibv.IBV_QPS_INIT,
		PkeyIndex:     uint16(c.t.opts.PKeyIndex),
		PortNum:       l.port.Num,
		QPAccessFlags: ibv.IBV_ACCESS_LOCAL_WRITE | ibv.IBV_ACCESS_REMOTE_WRITE,
	}, ibv.IBV_QP_STATE|ibv.IBV_QP_PKEY_INDEX|ibv.IBV_QP_PORT|ibv.IBV_QP_ACCESS_FLAGS)
	if err != nil {
		return nil, err
	}
	q.wr = ibv.Carve[ibv.SendWR](c.mem, writes)
	q.sge = ibv.Carve[ibv.SGE](c.mem, writes)
	if !c.sending && !c.trial {
		q.chainReceives(ibv.Carve[ibv.RecvWR](c.mem, recvBatch))
		if err := q.fillReceives(); err != nil {
			return nil, err
		}
	}
	l.port.watch(q)
	return q, nil
}

func (q *queuePair) offer(h *handshake.Lane) {
	p := q.port.now()
	h.Kind = handshake.LaneVerbs
	h.QPN, h.PSN, h.Token = q.qp.Num(), q.psn, q.token
	h.GID, h.GIDIndex = q.gid, uint16(q.gidIndex)
	h.LID, h.MTU, h.MaxMsg = p.attr.LID, uint8(p.attr.ActiveMTU), p.attr.MaxMsgSz
}

// connect takes the queue pair to RTS. RTR may block in the kernel for a second
// while it resolves the peer's address, so that lanes are connected in parallel
// and never on NCCL's threads.
func (q *queuePair) connect(_ context.Context, remote handshake.Lane, peerDev int) error {
	p, o := q.port.now(), &q.conn.t.opts
	q.peerDev = peerDev
	q.chunk = chunkOf(p.attr.MaxMsgSz, remote.MaxMsg)
	ah := ibv.AHAttr{PortNum: p.Num, SL: uint8(o.ServiceLevel)}
	if p.attr.LinkLayer == ibv.IBV_LINK_LAYER_ETHERNET {
		ah.IsGlobal = 1
		ah.GRH = ibv.GlobalRoute{DGID: ibv.GID(remote.GID), SGIDIndex: uint8(q.gidIndex), HopLimit: 255, TrafficClass: uint8(o.TrafficClass)}
	} else {
		ah.DLID = remote.LID
	}
	err := q.qp.Modify(&ibv.QPAttr{
		QPState: ibv.IBV_QPS_RTR, AHAttr: ah,
		PathMTU:   min(p.attr.ActiveMTU, uint32(remote.MTU)),
		DestQPNum: remote.QPN, RQPSN: remote.PSN,
		MaxDestRdAtomic: 1, MinRnrTimer: 1, // 0.01 ms, the shortest
	}, ibv.IBV_QP_STATE|ibv.IBV_QP_AV|ibv.IBV_QP_PATH_MTU|ibv.IBV_QP_DEST_QPN|ibv.IBV_QP_RQ_PSN|
		ibv.IBV_QP_MAX_DEST_RD_ATOMIC|ibv.IBV_QP_MIN_RNR_TIMER)
	if err != nil {
		return err
	}
	return q.qp.Modify(&ibv.QPAttr{
		QPState: ibv.IBV_QPS_RTS, SQPSN: q.psn, MaxRdAtomic: 1,
		Timeout: uint8(o.ackTimeout(q.conn.trial)), RetryCnt: uint8(o.RetryCount), RnrRetry: uint8(o.RNRRetry),
	}, ibv.IBV_QP_STATE|ibv.IBV_QP_TIMEOUT|ibv.IBV_QP_RETRY_CNT|ibv.IBV_QP_RNR_RETRY|
		ibv.IBV_QP_SQ_PSN|ibv.IBV_QP_MAX_QP_RD_ATOMIC)
}

func (q *queuePair) terms() string {
	attr := &q.port.now().attr
	mtu := mtuBytes(min(attr.ActiveMTU, uint32(q.remote.MTU)))
	if attr.LinkLayer == ibv.IBV_LINK_LAYER_INFINIBAND {
		return fmt.Sprintf("mtu %d lid %d", mtu, q.remote.LID)
	}
	return fmt.Sprintf("mtu %d gid %d", mtu, q.gidIndex)
}

// mtuBytes is the number of bytes of an ibv_mtu.
func mtuBytes(mtu uint32) int { return 128 << mtu }

// postProof writes the peer's token into its memory: the lane's first packet,
// and the only evidence of a path that counts.
func (q *queuePair) postProof() error {
	c := q.conn
	c.wire.out[q.index] = q.remote.Token
	q.sge[0] = ibv.SGE{Addr: uint64(ibv.AddrOf(&c.wire.out[q.index])), Length: 8, LKey: q.device.wire.LKey()}
	q.wr[0] = ibv.SendWR{
		WRID: wrID(wrProof, q.index, 0, 1), SGList: ibv.AddrOf(&q.sge[0]), NumSGE: 1,
		Opcode: ibv.IBV_WR_RDMA_WRITE, SendFlags: ibv.IBV_SEND_SIGNALED,
		RemoteAddr: c.peerBase + proofOffset(q.index), RKey: c.peerKeys[q.peerDev],
	}
	if _, err := q.qp.PostSend(&q.wr[0]); err != nil {
		return err
	}
	q.proof = proofPosted
	q.credits--
	q.device.sends++
	return nil
}

func (q *queuePair) proved() (sent, came bool, err error) {
	q.conn.pollDevice(q.device)
	if q.proof == proofFailed {
		return false, false, q.proofErr
	}
	return q.proof == proofDone, acquire(&q.conn.wire.in[q.index]) == q.token, nil
}

// writes is the number of work requests of a part of b bytes.
func (q *queuePair) writes(b int) int {
	return max(1, (b+int(q.chunk)-1)/int(q.chunk))
}

func (q *queuePair) room(b int) (bool, error) {
	w := q.writes(b)
	if w > len(q.wr) {
		return false, fmt.Errorf("%w: %v: %v: a part of %d bytes takes %d writes of %d bytes, more than %d", ErrUsage, q.conn, q.lane, b, w, q.chunk, len(q.wr))
	}
	return q.credits >= w, nil
}

// sendPart posts plain writes of a chunk each, and one with the immediate for
// the rest.
func (q *queuePair) sendPart(req *Request, g *grant, local, off uint64, b int, m imm, r *Region) error {
	n := q.writes(b)
	m.writes = uint8(n - 1)
	var lkey uint32
	if b > 0 {
		lkey = r.lkeys[q.dev]
	}
	rest := b
	for i := range n {
		w, e := &q.wr[i], &q.sge[i]
		length := min(rest, int(q.chunk))
		e.Addr, e.Length, e.LKey = local, uint32(length), lkey
		w.WRID = wrID(wrPart, q.index, req.index, 0)
		w.SGList, w.NumSGE = ibv.AddrOf(e), 1
		w.Opcode, w.SendFlags = ibv.IBV_WR_RDMA_WRITE, 0
		w.RemoteAddr, w.RKey = g.addr+off, g.rkeys[q.peerDev]
		w.Next = 0
		if i+1 < n {
			w.Next = ibv.AddrOf(&q.wr[i+1])
		} else {
			w.WRID = wrID(wrPart, q.index, req.index, n)
			w.Opcode, w.SendFlags = ibv.IBV_WR_RDMA_WRITE_WITH_IMM, ibv.IBV_SEND_SIGNALED
			w.Imm = networkOrder(m.encode())
			if length == 0 {
				w.SGList, w.NumSGE = 0, 0
			}
		}
		local += uint64(length)
		off += uint64(length)
		rest -= length
	}
	if _, err := q.qp.PostSend(&q.wr[0]); err != nil {
		return fmt.Errorf("%v: %v: %w", q.conn, q.lane, err)
	}
	q.credits -= n
	q.device.sends++
	return nil
}

func (q *queuePair) grantable() bool { return q.credits > 0 }

// prepare posts receives again. The grant relies on them: there are always more
// than sub-receives that can be outstanding.
func (q *queuePair) prepare() error {
	if q.posted > recvDepth-recvBatch {
		return nil
	}
	if err := q.fillReceives(); err != nil {
		return fmt.Errorf("%v: %v: %w", q.conn, q.lane, err)
	}
	return nil
}

// sendGrant writes entries, a slot of the shadow, into the sender's ring.
func (q *queuePair) sendGrant(seq uint64, entries []grant) error {
	c := q.conn
	length := uint32(len(entries)) * entrySize
	q.sge[0] = ibv.SGE{Addr: uint64(ibv.AddrOf(&entries[0])), Length: length, LKey: q.device.wire.LKey()}
	w := &q.wr[0]
	w.SGList, w.NumSGE, w.Next = ibv.AddrOf(&q.sge[0]), 1, 0
	w.Opcode, w.SendFlags = ibv.IBV_WR_RDMA_WRITE, 0
	w.RemoteAddr, w.RKey = c.peerBase+grantOffset(seq), c.peerKeys[q.peerDev]
	w.WRID = wrID(wrGrant, q.index, 0, 0)
	if length <= q.qp.MaxInline() {
		w.SendFlags = ibv.IBV_SEND_INLINE
	}
	q.unsig++
	signal := q.unsig == grantSignal
	if signal {
		w.SendFlags |= ibv.IBV_SEND_SIGNALED
		w.WRID = wrID(wrGrant, q.index, 0, q.unsig)
	}
	if _, err := q.qp.PostSend(w); err != nil {
		return fmt.Errorf("%v: %v: %w", c, q.lane, err)
	}
	q.credits--
	if signal {
		q.unsig = 0
		q.device.sends++
	}
	return nil
}

// chainReceives prepares the receive work requests, which never change: they
// carry no buffer, as a write with immediate consumes one for its completion.
func (q *queuePair) chainReceives(recv []ibv.RecvWR) {
	for i := range recv {
		recv[i] = ibv.RecvWR{WRID: wrID(wrRecv, q.index, 0, 0)}
		if i+1 < len(recv) {
			recv[i].Next = ibv.AddrOf(&recv[i+1])
		}
	}
	q.recv = recv
}

// fillReceives brings the queue pair's receives back to recvDepth.
func (q *queuePair) fillReceives() error {
	for q.posted < recvDepth {
		n := min(recvDepth-q.posted, len(q.recv))
		last := &q.recv[n-1]
		next := last.Next
		last.Next = 0
		_, err := q.qp.PostRecv(&q.recv[0])
		last.Next = next
		if err != nil {
			return err
		}
		q.posted += n
	}
	return nil
}

// stop takes the queue pair to ERR: the device sends and accepts nothing more
// and flushes what was posted. A marker shows when the send queue has been
// flushed: of its requests, only those that fail complete unasked. Receives are
// counted; one posted now might wait for ever, as rxe's providers do not tell the
// kernel of it.
func (q *queuePair) stop() error {
	if err := q.qp.Modify(&ibv.QPAttr{QPState: ibv.IBV_QPS_ERR}, ibv.IBV_QP_STATE); err != nil {
		return err
	}
	q.wr[0] = ibv.SendWR{WRID: wrID(wrMarker, q.index, 0, 0), Opcode: ibv.IBV_WR_RDMA_WRITE, SendFlags: ibv.IBV_SEND_SIGNALED}
	if _, err := q.qp.PostSend(&q.wr[0]); err != nil {
		return err
	}
	q.marked++
	return nil
}

func (q *queuePair) drained() bool {
	q.conn.pollDevice(q.device)
	return q.marks == q.marked && q.posted == 0
}

func (q *queuePair) close() error {
	q.port.unwatch(q)
	return q.qp.Close()
}
