package adapter

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"ncclmesh/ibv"
	"ncclmesh/tests/sim/bus"
)

// A queuePair is a reliable connection's end.
//
//	RESET → INIT → RTR → RTS ⇄ SQD        any → ERR, any → RESET
type queuePair struct {
	domain         *domain
	process        *Process
	handle         uintptr
	num            uint32
	source         *bus.Source
	sendCQ, recvCQ *compQueue
	cap            ibv.QPCap
	sigAll         bool
	attr           ibv.QPAttr // QPState is the state
	peer           *Port      // that the path leads to
	events         acks
	ece            ece
	dead           bool // destroyed

	requester
	responder
}

func (p *Process) CreateQP(pd uintptr, init *ibv.QPCreate) (ibv.QPInfo, syscall.Errno) {
	d := find(p, p.pds, pd)
	dev := d.context.device
	errno := p.enter(dev, "create_qp")
	f := p.fabric
	defer f.mu.Unlock()
	l, c := &dev.limits, init.Cap
	most := func(v uint32, limit int) bool { return int(v) <= limit }
	switch {
	case errno != 0:
		return ibv.QPInfo{}, errno
	case init.Type != ibv.IBV_QPT_RC:
		return ibv.QPInfo{}, syscall.EOPNOTSUPP
	case !most(c.MaxSendWR, l.QPWR) || !most(c.MaxRecvWR, l.QPWR) || !most(c.MaxSendSGE, l.SGE) || !most(c.MaxRecvSGE, l.SGE) ||
		!most(c.MaxInlineData, l.Inline):
		return ibv.QPInfo{}, syscall.EINVAL
	case len(p.qps) >= l.QPs:
		return ibv.QPInfo{}, syscall.ENOMEM
	}
	q := &queuePair{domain: d, process: p, handle: f.handle(), num: f.nextQPN, sendCQ: p.cqs[init.SendCQ], recvCQ: p.cqs[init.RecvCQ],
		cap: c, sigAll: init.SigAll}
	f.nextQPN++
	q.disagree()
	q.source = f.bus.Source(fmt.Sprintf("queue pair %#x of %s/%s", q.num, dev.node, dev.name))
	p.qps[q.handle], f.qps[q.num] = q, q
	d.context.qps = append(d.context.qps, q)
	d.users++
	q.sendCQ.users++
	q.recvCQ.users++
	return ibv.QPInfo{Handle: q.handle, Num: q.num, MaxInline: c.MaxInlineData, Queue: q}, 0
}

func (p *Process) DestroyQP(handle uintptr) syscall.Errno {
	f := p.fabric
	q := find(p, p.qps, handle)
	errno := p.enter(q.device(), "destroy_qp")
	defer f.mu.Unlock()
	if errno != 0 && !q.device().dead && !p.gone {
		return errno
	}
	q.remove()
	q.domain.context.forget(&q.events)
	f.settle(&q.events)
	q.domain.users--
	q.sendCQ.users--
	q.recvCQ.users--
	delete(p.qps, handle)
	return 0
}

// remove takes the queue pair off the fabric: from here on it neither sends nor receives.
func (q *queuePair) remove() {
	if q.dead {
		return
	}
	q.dead = true
	q.clear()
	c := q.domain.context
	c.qps = slices.DeleteFunc(c.qps, func(o *queuePair) bool { return o == q })
	delete(c.device.fabric.qps, q.num)
	q.sendCQ.purge(q)
	q.recvCQ.purge(q)
}

// clear forgets all requests and stops what was to happen.
func (q *queuePair) clear() {
	q.stop()
	q.requester, q.responder = requester{epoch: q.requester.epoch + 1}, responder{}
}

func (q *queuePair) device() *Device { return q.domain.context.device }

func (q *queuePair) fabric() *Fabric { return q.device().fabric }

// port is what the queue pair is on; nil before INIT.
func (q *queuePair) port() *Port { return q.device().port(q.attr.PortNum) }

// mtu is the number of bytes in a packet.
func (q *queuePair) mtu() uint64 { return 128 << q.attr.PathMTU }

// receives reports whether the queue pair takes packets.
func (q *queuePair) receives() bool {
	switch q.attr.QPState {
	case ibv.IBV_QPS_RTR, ibv.IBV_QPS_RTS, ibv.IBV_QPS_SQD:
		return !q.dead
	}
	return false
}

// raise raises an asynchronous event of the queue pair.
func (q *queuePair) raise(event uint32) {
	q.domain.context.post(ibv.AsyncEvent{Type: event, Element: q.handle, QPN: q.num}, &q.events)
}

// fail puts the queue pair into the error state: what was posted is flushed, sends first.
func (q *queuePair) fail() {
	if q.dead || q.attr.QPState == ibv.IBV_QPS_ERR || q.attr.QPState == ibv.IBV_QPS_RESET {
		return
	}
	q.attr.QPState = ibv.IBV_QPS_ERR
	q.stop()
	q.flush()
}

// flush completes all requests as flushed.
func (q *queuePair) flush() {
	for _, w := range q.sends {
		q.completeSend(w, ibv.IBV_WC_WR_FLUSH_ERR)
	}
	q.sends = nil
	for _, r := range q.recvs {
		q.completeRecv(r, ibv.WC{Status: ibv.IBV_WC_WR_FLUSH_ERR}, true)
	}
	q.recvs = nil
}

// masks are the attributes that a change of state needs, and those that it takes besides.
type masks struct{ needs, takes uint32 }

const (
	forInit = ibv.IBV_QP_PKEY_INDEX | ibv.IBV_QP_PORT | ibv.IBV_QP_ACCESS_FLAGS
	forRTR  = ibv.IBV_QP_AV | ibv.IBV_QP_PATH_MTU | ibv.IBV_QP_DEST_QPN | ibv.IBV_QP_RQ_PSN | ibv.IBV_QP_MAX_DEST_RD_ATOMIC |
		ibv.IBV_QP_MIN_RNR_TIMER
	forRTS  = ibv.IBV_QP_TIMEOUT | ibv.IBV_QP_RETRY_CNT | ibv.IBV_QP_RNR_RETRY | ibv.IBV_QP_SQ_PSN | ibv.IBV_QP_MAX_QP_RD_ATOMIC
	running = ibv.IBV_QP_CUR_STATE | ibv.IBV_QP_ACCESS_FLAGS | ibv.IBV_QP_MIN_RNR_TIMER
)

var changes = map[[2]uint32]masks{
	{ibv.IBV_QPS_RESET, ibv.IBV_QPS_INIT}: {forInit, 0},
	{ibv.IBV_QPS_INIT, ibv.IBV_QPS_INIT}:  {0, forInit},
	{ibv.IBV_QPS_INIT, ibv.IBV_QPS_RTR}:   {forRTR, ibv.IBV_QP_ACCESS_FLAGS | ibv.IBV_QP_PKEY_INDEX},
	{ibv.IBV_QPS_RTR, ibv.IBV_QPS_RTS}:    {forRTS, running},
	{ibv.IBV_QPS_RTS, ibv.IBV_QPS_RTS}:    {0, running},
	{ibv.IBV_QPS_RTS, ibv.IBV_QPS_SQD}:    {0, ibv.IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{ibv.IBV_QPS_SQD, ibv.IBV_QPS_RTS}:    {0, running},
}

func (p *Process) ModifyQP(handle uintptr, a *ibv.QPAttr, mask uint32) syscall.Errno {
	q := find(p, p.qps, handle)
	errno := p.enter(q.device(), "modify_qp")
	defer p.fabric.mu.Unlock()
	if errno != 0 {
		return errno
	}
	from, to := q.attr.QPState, q.attr.QPState
	if mask&ibv.IBV_QP_STATE != 0 {
		to = a.QPState
	}
	rest := mask &^ ibv.IBV_QP_STATE
	switch to {
	case ibv.IBV_QPS_RESET, ibv.IBV_QPS_ERR:
		if rest&^ibv.IBV_QP_CUR_STATE != 0 {
			return syscall.EINVAL
		}
		q.end(to)
		return 0
	}
	m, ok := changes[[2]uint32{from, to}]
	if !ok || rest&m.needs != m.needs || rest&^(m.needs|m.takes) != 0 || !q.valid(a, mask) {
		return syscall.EINVAL
	}
	var peer *Port
	if mask&ibv.IBV_QP_AV != 0 {
		if peer, errno = q.resolve(&a.AHAttr); errno != 0 {
			return errno
		}
		if q.attr.QPState != from { // it failed meanwhile
			return syscall.EINVAL
		}
		q.peer = peer
	}
	q.keep(a, mask)
	q.agree(to)
	q.attr.QPState = to
	if to == ibv.IBV_QPS_RTS {
		q.ready()
	}
	return 0
}

// end takes the queue pair to RESET or ERR.
func (q *queuePair) end(to uint32) {
	if to == ibv.IBV_QPS_ERR {
		if q.attr.QPState == ibv.IBV_QPS_RESET {
			q.attr.QPState = ibv.IBV_QPS_ERR
		}
		q.fail()
		return
	}
	q.clear()
	q.attr, q.peer = ibv.QPAttr{}, nil
	q.disagree()
	q.sendCQ.purge(q)
	q.recvCQ.purge(q)
}

// valid checks the values of attributes.
func (q *queuePair) valid(a *ibv.QPAttr, mask uint32) bool {
	has := func(bit uint32) bool { return mask&bit != 0 }
	switch {
	case has(ibv.IBV_QP_CUR_STATE), // nobody says what state it expects
		has(ibv.IBV_QP_PORT) && q.device().port(a.PortNum) == nil,
		has(ibv.IBV_QP_PKEY_INDEX) && a.PkeyIndex != 0,
		has(ibv.IBV_QP_PATH_MTU) && (a.PathMTU < ibv.IBV_MTU_256 || a.PathMTU > q.port().config.MTU),
		has(ibv.IBV_QP_DEST_QPN) && a.DestQPNum > 0xffffff,
		has(ibv.IBV_QP_RQ_PSN) && a.RQPSN > 0xffffff,
		has(ibv.IBV_QP_SQ_PSN) && a.SQPSN > 0xffffff,
		has(ibv.IBV_QP_MAX_QP_RD_ATOMIC) && int(a.MaxRdAtomic) > q.device().limits.Reads,
		has(ibv.IBV_QP_MAX_DEST_RD_ATOMIC) && int(a.MaxDestRdAtomic) > q.device().limits.Reads,
		has(ibv.IBV_QP_TIMEOUT) && a.Timeout > 31,
		has(ibv.IBV_QP_MIN_RNR_TIMER) && a.MinRnrTimer > 31,
		has(ibv.IBV_QP_RETRY_CNT) && a.RetryCnt > 7,
		has(ibv.IBV_QP_RNR_RETRY) && a.RnrRetry > 7:
		return false
	}
	if has(ibv.IBV_QP_AV) {
		port, ah := q.port(), &a.AHAttr
		if ah.PortNum != port.num || ah.IsGlobal != 0 && int(ah.GRH.SGIDIndex) >= len(port.config.GIDs) {
			return false
		}
		return port.config.LID != 0 && ah.DLID != 0 || port.config.LID == 0 && ah.IsGlobal != 0
	}
	return true
}

// resolve finds the port that an address leads to. On Ethernet the neighbour is asked for, which takes a while where it does
// not answer; packets to a LID that nobody has are lost.
func (q *queuePair) resolve(ah *ibv.AHAttr) (*Port, syscall.Errno) {
	const looks = 20
	f := q.fabric()
	for range looks {
		peer := q.port().reach(ah)
		if peer != nil || q.port().config.LID != 0 {
			return peer, 0
		}
		f.mu.Unlock()
		q.source.Sleep(Resolve / looks)
		q.process.gate.Wait()
		f.mu.Lock()
	}
	f.count("unresolved", 1)
	return nil, syscall.ETIMEDOUT
}

// keep takes attributes over.
func (q *queuePair) keep(a *ibv.QPAttr, mask uint32) {
	take := func(bit uint32, do func(to *ibv.QPAttr)) {
		if mask&bit != 0 {
			do(&q.attr)
		}
	}
	take(ibv.IBV_QP_ACCESS_FLAGS, func(to *ibv.QPAttr) { to.QPAccessFlags = a.QPAccessFlags })
	take(ibv.IBV_QP_PKEY_INDEX, func(to *ibv.QPAttr) { to.PkeyIndex = a.PkeyIndex })
	take(ibv.IBV_QP_PORT, func(to *ibv.QPAttr) { to.PortNum = a.PortNum })
	take(ibv.IBV_QP_AV, func(to *ibv.QPAttr) { to.AHAttr = a.AHAttr })
	take(ibv.IBV_QP_PATH_MTU, func(to *ibv.QPAttr) { to.PathMTU = a.PathMTU })
	take(ibv.IBV_QP_DEST_QPN, func(to *ibv.QPAttr) { to.DestQPNum = a.DestQPNum })
	take(ibv.IBV_QP_RQ_PSN, func(to *ibv.QPAttr) { to.RQPSN = a.RQPSN; q.expected = a.RQPSN })
	take(ibv.IBV_QP_SQ_PSN, func(to *ibv.QPAttr) { to.SQPSN = a.SQPSN; q.unacked, q.nextPSN, q.endPSN = a.SQPSN, a.SQPSN, a.SQPSN })
	take(ibv.IBV_QP_TIMEOUT, func(to *ibv.QPAttr) { to.Timeout = a.Timeout })
	take(ibv.IBV_QP_RETRY_CNT, func(to *ibv.QPAttr) { to.RetryCnt = a.RetryCnt })
	take(ibv.IBV_QP_RNR_RETRY, func(to *ibv.QPAttr) { to.RnrRetry = a.RnrRetry })
	take(ibv.IBV_QP_MAX_QP_RD_ATOMIC, func(to *ibv.QPAttr) { to.MaxRdAtomic = a.MaxRdAtomic })
	take(ibv.IBV_QP_MAX_DEST_RD_ATOMIC, func(to *ibv.QPAttr) { to.MaxDestRdAtomic = a.MaxDestRdAtomic })
	take(ibv.IBV_QP_MIN_RNR_TIMER, func(to *ibv.QPAttr) { to.MinRnrTimer = a.MinRnrTimer })
}

func (p *Process) QueryQP(handle uintptr, attr *ibv.QPAttr, _ uint32) syscall.Errno {
	q := find(p, p.qps, handle)
	errno := p.enter(q.device(), "query_qp")
	defer p.fabric.mu.Unlock()
	*attr = q.attr
	return errno
}

// after asks for an event of the queue pair, which does not come about if the queue pair is reset or destroyed before.
func (q *queuePair) after(d time.Duration, what string, do func()) *bus.Event {
	epoch := q.requester.epoch
	return q.fabric().after(q.source, d, what, func() {
		if !q.dead && q.requester.epoch == epoch {
			do()
		}
	})
}
