package adapter

import (
	"syscall"
	"time"

	"ncclmesh/ibv"
)

// A responder is the half of a queue pair that carries out what its peer asks for.
type responder struct {
	recvs      []*recv // posted and not completed, the oldest first
	recvPosted uint64
	received   uint64 // of those, whose room was given back

	expected    uint32 // the next packet
	refusedOnce bool   // a gap was told of
	established bool

	replies  []*packet
	replying bool
	answered time.Duration
}

// recv is a receive.
type recv struct {
	id     uint64
	number uint64
	list   []ibv.SGE
}

// PostRecv posts receives.
func (q *queuePair) PostRecv(wr *ibv.RecvWR) (int32, *ibv.RecvWR) {
	f := q.fabric()
	f.mu.Lock()
	defer f.mu.Unlock()
	for ; wr != nil; wr = next[ibv.RecvWR](wr.Next) {
		errno := q.process.refused(q.device(), "post_recv")
		switch {
		case errno != 0:
		case q.attr.QPState == ibv.IBV_QPS_RESET, wr.NumSGE < 0 || uint32(wr.NumSGE) > q.cap.MaxRecvSGE:
			errno = syscall.EINVAL
		case q.recvPosted-q.received >= uint64(q.cap.MaxRecvWR):
			errno = syscall.ENOMEM
		}
		if errno != 0 {
			return int32(errno), wr
		}
		q.recvPosted++
		r := &recv{id: wr.WRID, number: q.recvPosted, list: append([]ibv.SGE(nil), elements(wr.SGList, wr.NumSGE)...)}
		if q.attr.QPState == ibv.IBV_QPS_ERR {
			q.completeRecv(r, ibv.WC{Status: ibv.IBV_WC_WR_FLUSH_ERR}, true)
			continue
		}
		q.recvs = append(q.recvs, r)
	}
	return 0, nil
}

// completeRecv completes a receive; wc has what is not the receive's.
func (q *queuePair) completeRecv(r *recv, wc ibv.WC, solicited bool) {
	wc.WRID, wc.QPNum = r.id, q.num
	if wc.Status != ibv.IBV_WC_SUCCESS {
		spoil(&wc, q.source.Rand)
	}
	q.recvCQ.push(entry{WC: wc, qp: q, posted: r.number, receive: true, solicited: solicited})
}

// takeRecv completes the oldest receive.
func (q *queuePair) takeRecv(wc ibv.WC, solicited bool) {
	r := q.recvs[0]
	q.recvs = q.recvs[1:]
	q.completeRecv(r, wc, solicited)
}

// receive takes a packet from the line.
// Preconditions: f.mu is locked; an event of the bus runs; q.receives().
func (q *queuePair) receive(p *packet) {
	switch p.kind {
	case kindAck, kindNak:
		q.answer(p)
		return
	case kindReadData:
		if q.attr.QPState == ibv.IBV_QPS_RTS || q.attr.QPState == ibv.IBV_QPS_SQD {
			q.takeData(p)
		}
		return
	}
	if q.attr.QPState == ibv.IBV_QPS_RTR && !q.established {
		q.established = true
		q.raise(ibv.IBV_EVENT_COMM_EST)
	}
	switch gap := ahead(p.psn, q.expected); {
	case gap > 0:
		if !q.refusedOnce {
			q.refusedOnce = true
			q.refuse(outOfOrder)
		}
	case p.kind == kindRead:
		q.serve(p, gap == 0)
	case gap < 0: // the whole burst: requests are cut at the same places each time
		q.fabric().count("repeated after it was done", 1)
		q.reply(&packet{kind: kindAck, psn: q.expected})
	default:
		q.execute(p)
	}
}

// execute carries a SEND or a WRITE out, as far as the packets go that have come.
func (q *queuePair) execute(p *packet) {
	takes := isSend(p.opcode) && p.first || withImm(p.opcode) && p.last
	if takes && len(q.recvs) == 0 {
		q.refuse(notReady)
		return
	}
	if isSend(p.opcode) {
		if !q.store(p) {
			return
		}
	} else if p.length > 0 {
		var to []byte
		if q.attr.QPAccessFlags&ibv.IBV_ACCESS_REMOTE_WRITE != 0 {
			to = q.domain.covers(p.rkey, p.address, p.length, ibv.IBV_ACCESS_REMOTE_WRITE, false)
		}
		if to == nil {
			q.broken(ibv.IBV_EVENT_QP_ACCESS_ERR, badAccess)
			return
		}
		q.device().write(to[p.offset:p.offset+uint64(len(p.data))], p.data)
		q.landed(to[p.offset : p.offset+uint64(len(p.data))])
	}
	q.expected, q.refusedOnce = plus(q.expected, p.count), false
	if p.last && (isSend(p.opcode) || withImm(p.opcode)) {
		wc := ibv.WC{Opcode: ibv.IBV_WC_RECV, ByteLen: uint32(p.length)}
		if withImm(p.opcode) {
			wc.Opcode = ibv.IBV_WC_RECV_RDMA_WITH_IMM
		}
		if p.opcode != ibv.IBV_WR_SEND {
			wc.Imm, wc.WCFlags = p.imm, ibv.IBV_WC_WITH_IMM
		}
		q.takeRecv(wc, p.solicited)
	}
	if p.ackNow {
		q.reply(&packet{kind: kindAck, psn: q.expected})
	}
}

// store puts the data of a SEND into the oldest receive. It returns false where that broke the queue pair.
func (q *queuePair) store(p *packet) bool {
	list := q.recvs[0].list
	if total(list) < p.length {
		q.takeRecv(ibv.WC{Status: ibv.IBV_WC_LOC_LEN_ERR}, true)
		q.broken(ibv.IBV_EVENT_QP_REQ_ERR, badRequest)
		return false
	}
	parts, ok := q.domain.gather(list, p.offset, p.offset+uint64(len(p.data)), ibv.IBV_ACCESS_LOCAL_WRITE)
	if !ok {
		q.takeRecv(ibv.WC{Status: ibv.IBV_WC_LOC_PROT_ERR}, true)
		q.broken(ibv.IBV_EVENT_QP_ACCESS_ERR, badPeer)
		return false
	}
	q.domain.scatter(parts, p.data)
	for _, part := range parts {
		q.landed(part)
	}
	return true
}

// landed tells of bytes that the peer has written.
func (q *queuePair) landed(b []byte) {
	f := q.fabric()
	if f.landed == nil || len(b) == 0 {
		return
	}
	at := ibv.AddrOf(&b[0])
	if m := f.ofGPU(b); m != nil {
		at += m.Addr() - ibv.AddrOf(&m.bytes[0])
	}
	f.landed(q.device().node, uint64(at), uint64(len(b)))
}

// serve answers a READ; one that is not new is answered again.
func (q *queuePair) serve(p *packet, fresh bool) {
	if q.attr.MaxDestRdAtomic == 0 {
		q.broken(ibv.IBV_EVENT_QP_REQ_ERR, badRequest)
		return
	}
	if q.readable(p) == nil {
		q.broken(ibv.IBV_EVENT_QP_ACCESS_ERR, badAccess)
		return
	}
	waiting := 0
	for _, r := range q.replies {
		if r.kind == kindReadData && r.last {
			waiting++
		}
	}
	if fresh && waiting >= int(q.attr.MaxDestRdAtomic) { // more than was agreed on
		q.broken(ibv.IBV_EVENT_QP_REQ_ERR, badRequest)
		return
	}
	if fresh {
		q.expected, q.refusedOnce = plus(q.expected, p.count), false
	}
	most := max(1, uint32(burstBytes/q.mtu()))
	for done := uint32(0); done < p.count; done += most {
		r := *p
		r.kind, r.psn, r.count = kindReadData, plus(p.psn, done), min(most, p.count-done)
		r.offset = uint64(done) * q.mtu() // from where the request begins
		r.last = done+most >= p.count
		q.reply(&r)
	}
}

// readable is the memory that a READ asks for; nil where it may not.
func (q *queuePair) readable(p *packet) []byte {
	if p.length == 0 {
		return []byte{}
	}
	if q.attr.QPAccessFlags&ibv.IBV_ACCESS_REMOTE_READ == 0 {
		return nil
	}
	return q.domain.covers(p.rkey, p.address, p.length, ibv.IBV_ACCESS_REMOTE_READ, false)
}

// broken refuses a request for good: the queue pair is in error, and its program is told.
func (q *queuePair) broken(event uint32, why reason) {
	q.refuse(why)
	q.fail()
	q.raise(event)
}

// refuse tells the requester why the next packet is not carried out.
func (q *queuePair) refuse(why reason) {
	q.reply(&packet{kind: kindNak, psn: q.expected, reason: why, timer: q.attr.MinRnrTimer})
}

// reply sends an answer, after those before it.
func (q *queuePair) reply(p *packet) {
	p.to, p.qpn, p.from, p.ece = q.peer, q.attr.DestQPNum, q.num, q.ece.inEffect
	p.number = (p.psn - q.attr.RQPSN) & 0xffffff
	q.replies = append(q.replies, p)
	q.pumpReplies()
}

func (q *queuePair) pumpReplies() {
	for !q.replying && len(q.replies) > 0 {
		p := q.replies[0]
		q.replies = q.replies[1:]
		if p.kind == kindReadData {
			if !q.receives() {
				continue // the queue pair failed meanwhile
			}
			from := q.readable(p)
			q.device().read(from)
			if from == nil {
				continue // deregistered meanwhile: the requester misses it, asks again and is refused
			}
			p.data = append([]byte(nil), from[min(p.offset, p.length):min(p.offset+uint64(p.count)*q.mtu(), p.length)]...)
		}
		if busy := q.port().line.send(p, &q.answered); busy > 0 {
			q.replying = true
			q.after(busy, "replied", func() {
				q.replying = false
				q.pumpReplies()
			})
		}
	}
}
