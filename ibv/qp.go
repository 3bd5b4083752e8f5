package ibv

import (
	"fmt"
	"net"
	"sync"
	"syscall"
)

// QPInit says what queue pair to create.
type QPInit struct {
	SendCQ, RecvCQ         *CQ // may be the same
	MaxSendWR, MaxRecvWR   uint32
	MaxSendSGE, MaxRecvSGE uint32
	MaxInline              uint32 // bytes that a send may carry inside the work request
	Type                   uint32 // IBV_QPT_RC and so on
	SigAll                 bool   // every send completes, signalled or not
}

// A QP is a queue pair.
type QP struct {
	pd     *PD
	life   life
	ptr    uintptr
	num    uint32
	sendFn uintptr
	recvFn uintptr
	cap    QPCap
	typ    uint32

	mu   sync.Mutex
	port uint8 // of the last successful Modify that set it
}

// CreateQP makes a queue pair in state RESET.
func (pd *PD) CreateQP(init QPInit) (*QP, error) {
	c := pd.ctx
	if init.SendCQ == nil || init.RecvCQ == nil {
		return nil, newError("create_qp", c.device.name, 0, syscall.EINVAL, "QPInit needs a SendCQ and a RecvCQ")
	}
	q := &QP{pd: pd, sendFn: c.ops.postSend, recvFn: c.ops.postRecv, typ: init.Type}
	parents := []*life{&pd.life, &init.SendCQ.life}
	if init.RecvCQ != init.SendCQ {
		parents = append(parents, &init.RecvCQ.life)
	}
	if err := q.life.begin(kindQP, parents...); err != nil {
		return nil, err
	}
	attr := &qpInitAttr{
		sendCQ: init.SendCQ.ptr,
		recvCQ: init.RecvCQ.ptr,
		cap: QPCap{
			MaxSendWR: init.MaxSendWR, MaxRecvWR: init.MaxRecvWR,
			MaxSendSGE: init.MaxSendSGE, MaxRecvSGE: init.MaxRecvSGE,
			MaxInlineData: init.MaxInline,
		},
		qpType: init.Type,
	}
	if init.SigAll {
		attr.sqSigAll = 1
	}
	var errno syscall.Errno
	if q.ptr, errno = c.lib.createQP(pd.ptr, attr); errno != 0 {
		q.life.abandon()
		detail := fmt.Sprintf("max_send_wr %d, max_recv_wr %d, max_send_sge %d, max_recv_sge %d, max_inline_data %d",
			init.MaxSendWR, init.MaxRecvWR, init.MaxSendSGE, init.MaxRecvSGE, init.MaxInline)
		switch errno {
		case syscall.ENOMEM, syscall.EPERM:
			detail += "; " + memlockHint()
		case syscall.EINVAL:
			detail += "; the device allows less than that, see `ibv_devinfo -v`"
		}
		return nil, newError("create_qp", c.device.name, 0, errno, detail)
	}
	q.num, q.cap = at[cQP](q.ptr).qpNum, attr.cap
	c.qps.Store(q.ptr, q)
	return q, nil
}

// PD is the domain it belongs to.
func (q *QP) PD() *PD { return q.pd }

// Num is the queue pair number, 24 bits.
func (q *QP) Num() uint32 { return q.num }

// MaxInline is what was granted: the bytes that a send may carry inside the work request.
func (q *QP) MaxInline() uint32 { return q.cap.MaxInlineData }

// Cap holds the sizes as granted.
func (q *QP) Cap() QPCap { return q.cap }

// Query returns the attributes in mask; a library may return more.
func (q *QP) Query(mask uint32) (QPAttr, error) {
	var attr QPAttr
	if err := q.life.check(); err != nil {
		return attr, err
	}
	errno := q.pd.ctx.lib.queryQP(q.ptr, &attr, mask)
	return attr, newError("query_qp", q.pd.ctx.device.name, 0, errno, fmt.Sprintf("queue pair %#x", q.num))
}

// State asks the device for the queue pair's state.
func (q *QP) State() (uint32, error) {
	attr, err := q.Query(IBV_QP_STATE)
	return attr.QPState, err
}

// QueryECE returns the provider's options for a connection of this queue pair.
func (q *QP) QueryECE() (ECE, error) {
	var ece ECE
	lib, dev := q.pd.ctx.lib, q.pd.ctx.device.name
	if err := q.life.check(); err != nil {
		return ece, err
	}
	if lib.fn.queryECE == 0 {
		return ece, lib.lacks("query_ece", dev, "ibv_query_ece@IBVERBS_1.10")
	}
	errno := lib.queryECE(q.ptr, &ece)
	return ece, newError("query_ece", dev, 0, errno, fmt.Sprintf("queue pair %#x", q.num))
}

// SetECE sets what both ends agreed on, in state INIT.
func (q *QP) SetECE(ece *ECE) error {
	lib, dev := q.pd.ctx.lib, q.pd.ctx.device.name
	if err := q.life.check(); err != nil {
		return err
	}
	if lib.fn.setECE == 0 {
		return lib.lacks("set_ece", dev, "ibv_set_ece@IBVERBS_1.10")
	}
	return newError("set_ece", dev, 0, lib.setECE(q.ptr, ece), fmt.Sprintf("queue pair %#x", q.num))
}

// PostSend posts wr and what it links to. On failure bad is the first request that was not posted.
func (q *QP) PostSend(wr *SendWR) (bad *SendWR, err error) {
	if q.life.ended.Load() {
		return wr, net.ErrClosed
	}
	r, bad := postSend(q.sendFn, q.ptr, wr)
	if r != 0 {
		return bad, q.postError("post_send", r)
	}
	return nil, nil
}

// PostRecv posts wr and what it links to. On failure bad is the first request that was not posted.
func (q *QP) PostRecv(wr *RecvWR) (bad *RecvWR, err error) {
	if q.life.ended.Load() {
		return wr, net.ErrClosed
	}
	r, bad := postRecv(q.recvFn, q.ptr, wr)
	if r != 0 {
		return bad, q.postError("post_recv", r)
	}
	return nil, nil
}

// postError makes an error of what an operation returned: the errno, with either sign.
func (q *QP) postError(op string, r int32) error {
	errno := syscall.Errno(max(r, -r))
	detail := fmt.Sprintf("queue pair %#x", q.num)
	switch errno {
	case syscall.ENOMEM:
		detail += ": its queue is full"
	case syscall.EINVAL:
		detail += ": the request is malformed, or the queue pair's state does not allow it"
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return newError(op, q.pd.ctx.device.name, q.port, errno, detail)
}

// Close destroys the queue pair. It waits for asynchronous events of the queue pair that are being handled.
func (q *QP) Close() error {
	c := q.pd.ctx
	return q.life.end(fmt.Sprintf("queue pair %#x on %s", q.num, c.device.name), func() error {
		c.qps.Delete(q.ptr)
		errno := c.lib.destroyQP(q.ptr)
		if errno != 0 {
			c.qps.Store(q.ptr, q)
		}
		return newError("destroy_qp", c.device.name, 0, errno, fmt.Sprintf("queue pair %#x", q.num))
	})
}
