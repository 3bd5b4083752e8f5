package adapter

import (
	"syscall"
	"time"

	"ncclmesh/ibv"
	"ncclmesh/tests/sim/bus"
)

const (
	burstBytes = 16 << 10 // of a burst, at most
	window     = 256      // packets that may wait for an acknowledgement
	ackEvery   = 32       // packets between two that ask for one inside a message
)

// A requester is the half of a queue pair that sends requests.
type requester struct {
	epoch uint64 // changes when the queue pair is reset

	sends     []*work // posted and not completed, the oldest first
	posted    uint64
	reclaimed uint64 // of those, whose room was given back

	unacked, nextPSN, endPSN uint32 // the first packet not acknowledged, the next to be sent, the end of what was posted

	rung    bool // that the requester is to look is on the bus
	sending bool // a burst leaves the port
	paused  *bus.Event
	timer   *bus.Event
	retries int // time-outs without progress
	rnrs    int // refusals by a receiver that was not ready, without progress
	quiet   uint32
	arrival time.Duration // of the last packet at the peer
}

// work is a send request.
type work struct {
	ibv.SendWR
	number    uint64
	list      []ibv.SGE
	inline    []byte
	length    uint64
	psn, end  uint32
	signalled bool
	bad       uint32 // status that it fails with when its turn comes
	got       uint32 // packets of a READ that have come
	again     bool   // what is missing of a READ was asked for again
}

func (w *work) read() bool { return w.Opcode == ibv.IBV_WR_RDMA_READ }

// open reports whether data of a READ is missing.
func (w *work) open() bool { return w.read() && plus(w.psn, w.got) != w.end }

// PostSend posts requests.
func (q *queuePair) PostSend(wr *ibv.SendWR) (int32, *ibv.SendWR) {
	q.process.gate.Wait()
	f := q.fabric()
	f.mu.Lock()
	defer f.mu.Unlock()
	for ; wr != nil; wr = next[ibv.SendWR](wr.Next) {
		errno := q.process.refused(q.device(), "post_send")
		if errno == 0 {
			errno = q.post(wr)
		}
		if errno != 0 {
			return int32(errno), wr
		}
	}
	return 0, nil
}

func (q *queuePair) post(wr *ibv.SendWR) syscall.Errno {
	switch q.attr.QPState {
	case ibv.IBV_QPS_RTS, ibv.IBV_QPS_SQD, ibv.IBV_QPS_ERR:
	default:
		return syscall.EINVAL
	}
	w := &work{SendWR: *wr, number: q.posted + 1, signalled: q.sigAll || wr.SendFlags&ibv.IBV_SEND_SIGNALED != 0}
	inline := wr.SendFlags&ibv.IBV_SEND_INLINE != 0
	switch {
	case wr.Opcode > ibv.IBV_WR_RDMA_READ:
		return syscall.EOPNOTSUPP
	case w.read() && (inline || q.attr.MaxRdAtomic == 0), wr.NumSGE < 0 || uint32(wr.NumSGE) > q.cap.MaxSendSGE:
		return syscall.EINVAL
	case q.posted-q.reclaimed >= uint64(q.cap.MaxSendWR):
		return syscall.ENOMEM
	}
	w.list = append(w.list, elements(wr.SGList, wr.NumSGE)...)
	w.length = total(w.list)
	if inline {
		if w.length > uint64(q.cap.MaxInlineData) {
			return syscall.EINVAL
		}
		for _, e := range w.list {
			w.inline = append(w.inline, bytesAt(e.Addr, uint64(e.Length))...)
		}
	}
	q.posted++
	if q.attr.QPState == ibv.IBV_QPS_ERR {
		q.completeSend(w, ibv.IBV_WC_WR_FLUSH_ERR)
		return 0
	}
	w.psn = q.endPSN
	w.end = plus(w.psn, uint32(max(1, (w.length+q.mtu()-1)/q.mtu())))
	q.endPSN = w.end
	q.sends = append(q.sends, w)
	q.ready()
	return 0
}

// ready has the requester look for what it can send, at the next event.
func (q *queuePair) ready() {
	if !q.rung {
		q.rung = true
		q.after(0, "rung", func() {
			q.rung = false
			q.pump()
		})
	}
}

// pump sends what can be sent.
// Preconditions: an event of the bus runs.
func (q *queuePair) pump() {
	for q.attr.QPState == ibv.IBV_QPS_RTS && !q.sending && q.paused == nil && ahead(q.nextPSN, q.unacked) < window {
		w := q.turn()
		if w == nil {
			return
		}
		p := q.cut(w)
		if w.bad != 0 {
			if w == q.sends[0] { // else when those before are done
				q.failSend(w.bad)
			}
			return
		}
		if p == nil {
			return
		}
		q.nextPSN = plus(p.psn, p.count)
		p.number = (p.psn - q.attr.SQPSN) & 0xffffff
		if q.timer == nil {
			q.arm()
		}
		if busy := q.port().line.send(p, &q.arrival); busy > 0 {
			q.sending = true
			q.after(busy, "sent", func() {
				q.sending = false
				q.pump()
			})
		}
	}
}

// turn is the request that the next packet is of; nil where there is none.
func (q *queuePair) turn() *work {
	for _, w := range q.sends {
		if ahead(w.end, q.nextPSN) > 0 {
			return w
		}
	}
	return nil
}

// cut makes the next packet of a request. It returns nil while the request has to wait, and sets w.bad where its memory
// cannot be sent.
func (q *queuePair) cut(w *work) *packet {
	p := &packet{to: q.peer, qpn: q.attr.DestQPNum, from: q.num, ece: q.ece.inEffect, psn: q.nextPSN, opcode: w.Opcode, address: w.RemoteAddr,
		rkey: w.RKey, imm: w.Imm, solicited: w.SendFlags&ibv.IBV_SEND_SOLICITED != 0, length: w.length}
	done := uint32(ahead(q.nextPSN, w.psn))
	p.offset, p.first = uint64(done)*q.mtu(), done == 0
	left := uint32(ahead(w.end, q.nextPSN))
	if w.length > uint64(q.device().limits.MsgSize) {
		w.bad = ibv.IBV_WC_LOC_LEN_ERR
		return nil
	}
	reads := 0
	for _, o := range q.sends {
		if o != w && o.open() && ahead(q.nextPSN, o.psn) > 0 {
			reads++
		}
	}
	if w.SendFlags&ibv.IBV_SEND_FENCE != 0 && reads > 0 {
		return nil
	}
	if w.read() {
		if _, ok := q.domain.gather(w.list, 0, w.length, ibv.IBV_ACCESS_LOCAL_WRITE); !ok {
			w.bad = ibv.IBV_WC_LOC_PROT_ERR
		}
		if reads >= int(q.attr.MaxRdAtomic) {
			return nil
		}
		p.kind, p.count, p.length, p.address = kindRead, left, w.length-p.offset, w.RemoteAddr+p.offset
		return p
	}
	p.count = min(left, max(1, uint32(burstBytes/q.mtu())))
	p.last = p.count == left
	if q.quiet += p.count; p.last || q.quiet >= ackEvery {
		p.ackNow, q.quiet = true, 0
	}
	q.load(w, p)
	return p
}

// load reads the bytes of a packet, as they are now.
func (q *queuePair) load(w *work, p *packet) {
	to := min(p.offset+uint64(p.count)*q.mtu(), w.length)
	if w.SendFlags&ibv.IBV_SEND_INLINE != 0 {
		p.data = w.inline[p.offset:to]
		return
	}
	parts, ok := q.domain.gather(w.list, p.offset, to, 0)
	if !ok {
		w.bad = ibv.IBV_WC_LOC_PROT_ERR
		return
	}
	for _, b := range parts {
		q.device().read(b)
		p.data = append(p.data, b...)
	}
}

// arm starts the time-out anew.
func (q *queuePair) arm() {
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
	if q.unacked == q.nextPSN || q.attr.Timeout == 0 || q.paused != nil {
		return
	}
	t := 4096 * time.Nanosecond << q.attr.Timeout
	q.timer = q.after(t+q.source.Between(0, t/8), "time-out", func() {
		q.timer = nil
		q.fabric().count("time-out", 1)
		q.repeat()
	})
}

// repeat sends again from the first packet that was not acknowledged, if attempts are left.
func (q *queuePair) repeat() {
	if q.attr.QPState != ibv.IBV_QPS_RTS || len(q.sends) == 0 {
		return
	}
	if q.retries >= int(q.attr.RetryCnt) {
		q.failSend(ibv.IBV_WC_RETRY_EXC_ERR)
		return
	}
	q.retries++
	q.back()
}

// back goes back to the first packet that was not acknowledged.
func (q *queuePair) back() {
	q.nextPSN, q.quiet = q.unacked, 0
	q.pump()
}

// stop stops what is to happen at the requester.
func (q *queuePair) stop() {
	for _, e := range []*bus.Event{q.timer, q.paused} {
		if e != nil {
			e.Stop()
		}
	}
	q.timer, q.paused = nil, nil
}

// acknowledged takes note that the peer has done all packets before psn. It reports whether that is so: data of a READ
// before it may be missing.
func (q *queuePair) acknowledged(psn uint32) bool {
	if ahead(psn, q.unacked) < 0 || ahead(psn, q.endPSN) > 0 {
		return false // of long ago
	}
	progress := psn != q.unacked
	for _, w := range q.sends {
		if have := plus(w.psn, w.got); w.open() && ahead(psn, have) > 0 { // its data was lost
			progress = have != q.unacked
			q.advance(have, progress)
			if !w.again {
				w.again = true
				q.repeat()
			}
			return false
		}
	}
	q.advance(psn, progress)
	return true
}

// advance completes what is done.
func (q *queuePair) advance(psn uint32, progress bool) {
	if ahead(psn, q.unacked) < 0 {
		return
	}
	q.unacked = psn
	if ahead(q.nextPSN, psn) < 0 {
		q.nextPSN = psn
	}
	if progress {
		q.retries, q.rnrs = 0, 0
	}
	for len(q.sends) > 0 && ahead(q.sends[0].end, psn) <= 0 {
		w := q.sends[0]
		q.sends = q.sends[1:]
		q.completeSend(w, ibv.IBV_WC_SUCCESS)
	}
	if progress {
		q.arm()
	}
}

// answer takes an acknowledgement or a refusal.
func (q *queuePair) answer(p *packet) {
	if q.attr.QPState != ibv.IBV_QPS_RTS && q.attr.QPState != ibv.IBV_QPS_SQD {
		return
	}
	if p.kind == kindAck {
		q.acknowledged(p.psn)
		q.pump()
		return
	}
	if !q.acknowledged(p.psn) || len(q.sends) == 0 || ahead(q.sends[0].psn, p.psn) > 0 {
		q.pump()
		return
	}
	q.fabric().count("refused: "+p.reason.String(), 1)
	switch p.reason {
	case outOfOrder:
		q.repeat()
	case notReady:
		q.wait(p.timer)
	case badRequest:
		q.failSend(ibv.IBV_WC_REM_INV_REQ_ERR)
	case badAccess:
		q.failSend(ibv.IBV_WC_REM_ACCESS_ERR)
	case badPeer:
		q.failSend(ibv.IBV_WC_REM_OP_ERR)
	}
}

// rnrWaits are the codes of the time that a receiver asks for, in microseconds (InfiniBand specification, volume 1).
var rnrWaits = [32]time.Duration{
	655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920,
	2560, 3840, 5120, 7680, 10240, 15360, 20480, 30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
}

// wait tries again after the time that a receiver asked for.
func (q *queuePair) wait(timer byte) {
	if q.paused != nil {
		return // another packet of the same burst of requests
	}
	if q.attr.RnrRetry != 7 { // 7: for ever
		if q.rnrs >= int(q.attr.RnrRetry) {
			q.failSend(ibv.IBV_WC_RNR_RETRY_EXC_ERR)
			return
		}
		q.rnrs++
	}
	q.paused = q.after(rnrWaits[timer&31]*time.Microsecond, "receiver may be ready", func() {
		q.paused = nil
		q.back()
	})
	q.arm() // not while it waits
}

// takeData takes data of a READ.
func (q *queuePair) takeData(p *packet) {
	for _, w := range q.sends {
		if !w.read() || ahead(p.psn, w.psn) < 0 || ahead(p.psn, w.end) >= 0 {
			continue
		}
		have := plus(w.psn, w.got)
		skip := -ahead(p.psn, have)
		switch {
		case skip < 0: // something before it was lost
			q.acknowledged(p.psn)
		case uint32(skip) < p.count:
			data := p.data[min(uint64(skip)*q.mtu(), uint64(len(p.data))):]
			at := uint64(w.got) * q.mtu()
			parts, ok := q.domain.gather(w.list, at, at+uint64(len(data)), ibv.IBV_ACCESS_LOCAL_WRITE)
			if !ok {
				if q.acknowledged(w.psn); len(q.sends) > 0 && q.sends[0] == w {
					q.failSend(ibv.IBV_WC_LOC_PROT_ERR)
				}
				return
			}
			q.domain.scatter(parts, data)
			w.got += p.count - uint32(skip)
			w.again = false
			q.acknowledged(plus(p.psn, p.count))
		}
		break
	}
	q.pump()
}

// failSend fails the oldest request, and the queue pair with it.
func (q *queuePair) failSend(status uint32) {
	w := q.sends[0]
	q.sends = q.sends[1:]
	q.fabric().count("failed: "+statusName(status), 1)
	q.completeSend(w, status)
	q.fail()
}

// completeSend completes a request. A success that was not signalled shows nowhere.
func (q *queuePair) completeSend(w *work, status uint32) {
	if status == ibv.IBV_WC_SUCCESS && !w.signalled {
		return
	}
	wc := ibv.WC{WRID: w.WRID, Status: status, QPNum: q.num}
	switch {
	case status != ibv.IBV_WC_SUCCESS:
		spoil(&wc, q.source.Rand)
	case w.read():
		wc.Opcode, wc.ByteLen = ibv.IBV_WC_RDMA_READ, uint32(w.length)
	case isSend(w.Opcode):
		wc.Opcode = ibv.IBV_WC_SEND
	default:
		wc.Opcode = ibv.IBV_WC_RDMA_WRITE
	}
	q.sendCQ.push(entry{WC: wc, qp: q, posted: w.number, solicited: status != ibv.IBV_WC_SUCCESS})
}

// statusName is what a status is counted as.
func statusName(status uint32) string {
	e := (&ibv.WC{Status: status}).Err("").(*ibv.WCError)
	return e.StatusText
}
