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
	info   QPInfo
	sendFn uintptr // of libibverbs
	recvFn uintptr
	typ    uint32

	mu    sync.Mutex
	port  uint8  // of the last successful Modify that set it
	state uint32 // to which the last successful Modify led
}

// CreateQP makes a queue pair in state RESET.
func (pd *PD) CreateQP(init QPInit) (*QP, error) {
	c := pd.ctx
	if init.SendCQ == nil || init.RecvCQ == nil {
		return nil, newError("create_qp", c.device.info.Name, 0, syscall.EINVAL, "QPInit needs a SendCQ and a RecvCQ")
	}
	q := &QP{pd: pd, sendFn: c.info.ops.postSend, recvFn: c.info.ops.postRecv, typ: init.Type}
	parents := []*life{&pd.life, &init.SendCQ.life}
	if init.RecvCQ != init.SendCQ {
		parents = append(parents, &init.RecvCQ.life)
	}
	if err := q.life.begin(kindQP, parents...); err != nil {
		return nil, err
	}
	create := &QPCreate{
		SendCQ: init.SendCQ.info.Handle,
		RecvCQ: init.RecvCQ.info.Handle,
		Cap: QPCap{
			MaxSendWR: init.MaxSendWR, MaxRecvWR: init.MaxRecvWR,
			MaxSendSGE: init.MaxSendSGE, MaxRecvSGE: init.MaxRecvSGE,
			MaxInlineData: init.MaxInline,
		},
		Type:   init.Type,
		SigAll: init.SigAll,
	}
	var errno syscall.Errno
	if q.info, errno = c.lib.driver.CreateQP(pd.ptr, create); errno != 0 {
		q.life.abandon()
		detail := fmt.Sprintf("max_send_wr %d, max_recv_wr %d, max_send_sge %d, max_recv_sge %d, max_inline_data %d",
			init.MaxSendWR, init.MaxRecvWR, init.MaxSendSGE, init.MaxRecvSGE, init.MaxInline)
		switch errno {
		case syscall.ENOMEM, syscall.EPERM:
			detail += "; " + memlockHint()
		case syscall.EINVAL:
			detail += "; the device allows less than that, see `ibv_devinfo -v`"
		}
		return nil, newError("create_qp", c.device.info.Name, 0, errno, detail)
	}
	c.qps.Store(q.info.Handle, q)
	return q, nil
}

// Num is the queue pair number, 24 bits.
func (q *QP) Num() uint32 { return q.info.Num }

// MaxInline is what was granted: the bytes that a send may carry inside the work request.
func (q *QP) MaxInline() uint32 { return q.info.MaxInline }

// Query returns the attributes in mask; a library may return more.
func (q *QP) Query(mask uint32) (QPAttr, error) {
	var attr QPAttr
	if err := q.life.check(); err != nil {
		return attr, err
	}
	errno := q.pd.ctx.lib.driver.QueryQP(q.info.Handle, &attr, mask)
	return attr, newError("query_qp", q.pd.ctx.device.info.Name, 0, errno, fmt.Sprintf("queue pair %#x", q.info.Num))
}

// State asks the device for the queue pair's state.
func (q *QP) State() (uint32, error) {
	attr, err := q.Query(IBV_QP_STATE)
	return attr.QPState, err
}

// QueryECE returns options for the connection of this queue pair: what the device can do, until SetECE was called.
func (q *QP) QueryECE() (ECE, error) {
	var ece ECE
	lib, dev := q.pd.ctx.lib, q.pd.ctx.device.info.Name
	if err := q.life.check(); err != nil {
		return ece, err
	}
	if err := lib.lacks("query_ece", dev); err != nil {
		return ece, err
	}
	errno := lib.driver.QueryECE(q.info.Handle, &ece)
	return ece, newError("query_ece", dev, 0, errno, fmt.Sprintf("queue pair %#x", q.info.Num))
}

// SetECE sets options for the connection of this queue pair, as a peer has them. They take effect, reduced to what the device
// can do, with the next change of state up to RTR: QueryECE then returns what is left.
func (q *QP) SetECE(ece *ECE) error {
	lib, dev := q.pd.ctx.lib, q.pd.ctx.device.info.Name
	if err := q.life.check(); err != nil {
		return err
	}
	if err := lib.lacks("set_ece", dev); err != nil {
		return err
	}
	return newError("set_ece", dev, 0, lib.driver.SetECE(q.info.Handle, ece),
		fmt.Sprintf("options %#x of vendor %#x for queue pair %#x", ece.Options, ece.VendorID, q.info.Num))
}

// PostSend posts wr and what it links to. On failure bad is the first request that was not posted.
func (q *QP) PostSend(wr *SendWR) (bad *SendWR, err error) {
	if q.life.ended.Load() {
		return wr, net.ErrClosed
	}
	var r int32
	if q.info.Queue == nil {
		r, bad = postSend(q.sendFn, q.info.Handle, wr)
	} else {
		r, bad = q.info.Queue.PostSend(wr)
	}
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
	var r int32
	if q.info.Queue == nil {
		r, bad = postRecv(q.recvFn, q.info.Handle, wr)
	} else {
		r, bad = q.info.Queue.PostRecv(wr)
	}
	if r != 0 {
		return bad, q.postError("post_recv", r)
	}
	return nil, nil
}

// postError makes an error of what an operation returned: the errno, with either sign.
func (q *QP) postError(op string, r int32) error {
	errno := syscall.Errno(max(r, -r))
	detail := fmt.Sprintf("queue pair %#x", q.info.Num)
	switch errno {
	case syscall.ENOMEM:
		detail += ": its queue is full"
	case syscall.EINVAL:
		detail += ": the request is malformed, or the queue pair's state does not allow it"
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return newError(op, q.pd.ctx.device.info.Name, q.port, errno, detail)
}

// Close destroys the queue pair. It waits for asynchronous events of the queue pair that are being handled.
func (q *QP) Close() error {
	c := q.pd.ctx
	return q.life.end(fmt.Sprintf("queue pair %#x on %s", q.info.Num, c.device.info.Name), func() error {
		c.qps.Delete(q.info.Handle)
		errno := c.lib.driver.DestroyQP(q.info.Handle)
		if errno != 0 {
			c.qps.Store(q.info.Handle, q)
		}
		return newError("destroy_qp", c.device.info.Name, 0, errno, fmt.Sprintf("queue pair %#x", q.info.Num))
	})
}
