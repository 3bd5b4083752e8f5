package transport

import (
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
	sendSlack   = 2 * window    // beyond the writes of one part, doubled
	recvDepth   = 2*window + 64 // receives of every queue pair of a receiver
	recvBatch   = 64            // receives are posted again in chains of at most this many
	grantSignal = 64            // one grant in this many is signalled
	inlineBytes = entrySize     // a single grant fits
)

// Work request ids: kind 8 | lane 8 | request 16 | credits 16 | 0 16.
const (
	wrPart = 1 + iota
	wrGrant
	wrProof
	wrRecv
	wrMarker
)

func wrID(kind, lane uint8, request, credits int) uint64 {
	return uint64(kind)<<56 | uint64(lane)<<48 | uint64(uint16(request))<<32 | uint64(uint16(credits))<<16
}

// device is one device of a connection: its completion queue and the
// registration of the connection's wire on it.
type device struct {
	port  *port
	cq    *ibv.CQ
	wire  *ibv.MR
	wc    []ibv.WC
	sends int // signalled sends whose completion has not been polled
}

// lane is a connected queue pair over one path.
type lane struct {
	conn     *conn
	index    uint8
	dev      int // of conn.devs
	peerDev  int // of the peer's device set
	qp       *ibv.QP
	psn      uint32
	token    uint64 // what the peer writes here as its proof
	gid      ibv.GID
	gidIndex int
	peer     handshake.Port // the peer's port
	remote   handshake.Lane // the peer's half

	up     bool   // usable
	rts    bool   // reached RTS
	proof  proof  // of this side's write
	reason string // why it is not usable

	chunk   uint32  // most bytes of one write
	weight  float64 // speed, relative to the other lanes
	credits int     // free send-queue entries
	backlog int64   // bytes posted and not delivered
	unsig   int     // grants since the last signalled one
	posted  int     // receives posted and not polled
	marks   int     // flushed markers, while draining
	marked  int     // posted markers

	wr   []ibv.SendWR
	sge  []ibv.SGE
	recv []ibv.RecvWR

	bytes, messages uint64
}

// proof is how far a lane's own proof write has come.
type proof uint8

const (
	proofNone proof = iota
	proofPosted
	proofDone
	proofFailed
)

func (l *lane) device() *device { return l.conn.devs[l.dev] }

// String names the path: local port, peer's port.
func (l *lane) String() string {
	return fmt.Sprintf("lane %d %s:%d -> %s:%d", l.index, l.device().port.Device, l.device().port.Num, l.peer.Device, l.peer.Num)
}

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

// newLane creates the queue pair of a lane, in INIT.
func newLane(c *conn, index uint8, dev int, gid topology.GID, peer handshake.Port) (*lane, error) {
	d := c.devs[dev]
	l := &lane{conn: c, index: index, dev: dev, peer: peer, gid: ibv.GID(gid.Raw), gidIndex: gid.Index}
	l.chunk = chunkOf(d.port.attr.MaxMsgSz, peer.MaxMsgSize)
	l.weight = float64(max(1, min(d.port.Mbps(), int(peer.SpeedMbps))))
	init := ibv.QPInit{SendCQ: d.cq, RecvCQ: d.cq, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: inlineBytes, Type: ibv.IBV_QPT_RC}
	if c.sending {
		l.credits = min(2*(window+mostWrites(l.chunk)), d.port.maxQPWR)
		init.MaxRecvWR = 1
	} else {
		l.credits = min(sendSlack, d.port.maxQPWR)
		if d.port.maxQPWR < recvDepth {
			return nil, fmt.Errorf("%s takes %d receives in a queue and %d are needed", d.port.String(), d.port.maxQPWR, recvDepth)
		}
		init.MaxRecvWR = recvDepth
	}
	init.MaxSendWR = uint32(l.credits)
	var err error
	if l.qp, err = d.port.pd.CreateQP(init); err != nil && !errors.Is(err, ibv.ErrNotSupported) {
		init.MaxInline = 0 // devices without inline data refuse it
		l.qp, err = d.port.pd.CreateQP(init)
	}
	if err != nil {
		return nil, err
	}
	var b [12]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, errors.Join(err, l.qp.Close())
	}
	l.psn = binary.NativeEndian.Uint32(b[:]) & 0xffffff
	l.token = binary.NativeEndian.Uint64(b[4:]) | 1 // never the zero that memory starts with
	err = l.qp.Modify(&ibv.QPAttr{
		QPState:       ibv.IBV_QPS_INIT,
		PkeyIndex:     uint16(c.t.opts.PKeyIndex),
		PortNum:       d.port.Num,
		QPAccessFlags: ibv.IBV_ACCESS_LOCAL_WRITE | ibv.IBV_ACCESS_REMOTE_WRITE,
	}, ibv.IBV_QP_STATE|ibv.IBV_QP_PKEY_INDEX|ibv.IBV_QP_PORT|ibv.IBV_QP_ACCESS_FLAGS)
	if err != nil {
		return nil, errors.Join(err, l.qp.Close())
	}
	d.port.watch(l)
	return l, nil
}

// offer is what the peer must know to connect its half.
func (l *lane) offer(peerPort uint8) handshake.Lane {
	p := l.device().port
	return handshake.Lane{
		Kind: laneVerbs, Index: l.index, Port: p.index, PeerPort: peerPort,
		QPN: l.qp.Num(), PSN: l.psn, GID: l.gid, GIDIndex: uint16(l.gidIndex),
		LID: p.attr.LID, MTU: uint8(p.attr.ActiveMTU), MaxMsg: p.attr.MaxMsgSz, Token: l.token,
	}
}

// laneVerbs is handshake.Lane's kind of a queue pair.
const laneVerbs = 1

// connect takes the queue pair to RTS against the peer's half. RTR may block in
// the kernel for a second while it resolves the peer's address, so that lanes
// are connected in parallel and never on NCCL's threads.
func (l *lane) connect(remote handshake.Lane) error {
	p, o := l.device().port, &l.conn.t.opts
	l.remote = remote
	l.chunk = chunkOf(p.attr.MaxMsgSz, remote.MaxMsg)
	ah := ibv.AHAttr{PortNum: p.Num, SL: uint8(o.ServiceLevel)}
	if p.attr.LinkLayer == ibv.IBV_LINK_LAYER_ETHERNET {
		ah.IsGlobal = 1
		ah.GRH = ibv.GlobalRoute{DGID: ibv.GID(remote.GID), SGIDIndex: uint8(l.gidIndex), HopLimit: 255, TrafficClass: uint8(o.TrafficClass)}
	} else {
		ah.DLID = remote.LID
	}
	err := l.qp.Modify(&ibv.QPAttr{
		QPState: ibv.IBV_QPS_RTR, AHAttr: ah,
		PathMTU:   min(p.attr.ActiveMTU, uint32(remote.MTU)),
		DestQPNum: remote.QPN, RQPSN: remote.PSN,
		MaxDestRdAtomic: 1, MinRnrTimer: 1, // 0.01 ms, the shortest
	}, ibv.IBV_QP_STATE|ibv.IBV_QP_AV|ibv.IBV_QP_PATH_MTU|ibv.IBV_QP_DEST_QPN|ibv.IBV_QP_RQ_PSN|
		ibv.IBV_QP_MAX_DEST_RD_ATOMIC|ibv.IBV_QP_MIN_RNR_TIMER)
	if err != nil {
		return err
	}
	err = l.qp.Modify(&ibv.QPAttr{
		QPState: ibv.IBV_QPS_RTS, SQPSN: l.psn, MaxRdAtomic: 1,
		Timeout: uint8(o.Timeout), RetryCnt: uint8(o.RetryCount), RnrRetry: uint8(o.RNRRetry),
	}, ibv.IBV_QP_STATE|ibv.IBV_QP_TIMEOUT|ibv.IBV_QP_RETRY_CNT|ibv.IBV_QP_RNR_RETRY|
		ibv.IBV_QP_SQ_PSN|ibv.IBV_QP_MAX_QP_RD_ATOMIC)
	if err == nil {
		l.rts = true
	}
	return err
}

// postProof writes the peer's token into its memory: the lane's first packet,
// and the only evidence of a path that counts.
func (l *lane) postProof() error {
	c := l.conn
	c.wire.out[l.index] = l.remote.Token
	l.sge[0] = ibv.SGE{Addr: uint64(ibv.AddrOf(&c.wire.out[l.index])), Length: 8, LKey: l.device().wire.LKey()}
	l.wr[0] = ibv.SendWR{
		WRID: wrID(wrProof, l.index, 0, 1), SGList: ibv.AddrOf(&l.sge[0]), NumSGE: 1,
		Opcode: ibv.IBV_WR_RDMA_WRITE, SendFlags: ibv.IBV_SEND_SIGNALED,
		RemoteAddr: c.peerBase + proofOffset(l.index), RKey: c.peerKeys[l.peerDev],
	}
	if _, err := l.qp.PostSend(&l.wr[0]); err != nil {
		return err
	}
	l.proof = proofPosted
	l.credits--
	l.device().sends++
	return nil
}

// arrived reports whether the peer's proof write has landed.
func (l *lane) arrived() bool { return acquire(&l.conn.wire.in[l.index]) == l.token }

// fillReceives brings the queue pair's receives back to recvDepth. They carry
// no buffer: a write with immediate consumes one for its completion.
func (l *lane) fillReceives() error {
	for l.posted < recvDepth {
		n := min(recvDepth-l.posted, len(l.recv))
		last := &l.recv[n-1]
		next := last.Next
		last.Next = 0
		_, err := l.qp.PostRecv(&l.recv[0])
		last.Next = next
		if err != nil {
			return err
		}
		l.posted += n
	}
	return nil
}

// prepareReceives chains the receive work requests, which never change.
func (l *lane) prepareReceives() {
	for i := range l.recv {
		l.recv[i] = ibv.RecvWR{WRID: wrID(wrRecv, l.index, 0, 0)}
		if i+1 < len(l.recv) {
			l.recv[i].Next = ibv.AddrOf(&l.recv[i+1])
		}
	}
}

// stop takes the queue pair to ERR: the device sends and accepts nothing more,
// and everything posted is flushed.
func (l *lane) stop() error {
	l.up = false
	return l.qp.Modify(&ibv.QPAttr{QPState: ibv.IBV_QPS_ERR}, ibv.IBV_QP_STATE)
}

// postMarkers posts a send, and on a receiver a receive, on a queue pair in ERR:
// when they come back flushed, everything before them has.
func (l *lane) postMarkers() error {
	l.wr[0] = ibv.SendWR{WRID: wrID(wrMarker, l.index, 0, 0), Opcode: ibv.IBV_WR_RDMA_WRITE, SendFlags: ibv.IBV_SEND_SIGNALED}
	if _, err := l.qp.PostSend(&l.wr[0]); err != nil {
		return err
	}
	l.marked++
	if !l.conn.sending {
		l.recv[0].Next, l.recv[0].WRID = 0, wrID(wrMarker, l.index, 0, 0)
		if _, err := l.qp.PostRecv(&l.recv[0]); err != nil {
			return err
		}
		l.marked++
	}
	return nil
}

// close destroys the queue pair.
func (l *lane) close() error {
	l.device().port.unwatch(l)
	return l.qp.Close()
}
