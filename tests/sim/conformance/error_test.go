package conformance

import (
	"ncclmesh/ibv"
)

// A violation is a request that is refused.
type violation struct {
	name   string
	op     uint32
	n, to  int // bytes, and where to
	change func(a *end, wr *ibv.SendWR)
	access uint32       // of the peer's region
	qp     uint32       // access of the peer's queue pair
	room   int          // of the peer's receive; 8
	status uint32       // at the requester
	recv   uint32       // of the peer's receive, where it notices: its queue pair is in error, and an event says so
	key    func(b *end) // what the peer does to its keys
}

var violations = []violation{
	{name: "write with a key that does not exist", op: opWrite, n: 8, change: func(_ *end, wr *ibv.SendWR) { wr.RKey ^= 0xff }, status: ibv.IBV_WC_REM_ACCESS_ERR, recv: flushed},
	{name: "write past the end", op: opWrite, n: 16, to: size - 8, status: ibv.IBV_WC_REM_ACCESS_ERR, recv: flushed},
	{name: "write before the start", op: opWrite, n: 16, to: -8, status: ibv.IBV_WC_REM_ACCESS_ERR, recv: flushed},
	{name: "write of much past the end", op: opWrite, n: 200_000, to: size - 100_000, status: ibv.IBV_WC_REM_ACCESS_ERR, recv: flushed},
	{name: "write with immediate past the end", op: opWriteImm, n: 16, to: size - 8, status: ibv.IBV_WC_REM_ACCESS_ERR, recv: flushed},
	{name: "write that the peer does not allow", op: opWrite, n: 8, access: ibv.IBV_ACCESS_LOCAL_WRITE | ibv.IBV_ACCESS_REMOTE_READ, status: ibv.IBV_WC_REM_ACCESS_ERR, recv: flushed},
	{name: "read that the peer does not allow", op: opRead, n: 8, access: ibv.IBV_ACCESS_LOCAL_WRITE | ibv.IBV_ACCESS_REMOTE_WRITE, status: ibv.IBV_WC_REM_ACCESS_ERR, recv: flushed},
	{name: "write that the peer's queue pair does not allow", op: opWrite, n: 8, qp: ibv.IBV_ACCESS_LOCAL_WRITE | ibv.IBV_ACCESS_REMOTE_READ, status: ibv.IBV_WC_REM_ACCESS_ERR, recv: flushed},
	{name: "read that the peer's queue pair does not allow", op: opRead, n: 8, qp: ibv.IBV_ACCESS_LOCAL_WRITE | ibv.IBV_ACCESS_REMOTE_WRITE, status: ibv.IBV_WC_REM_ACCESS_ERR, recv: flushed},
	{name: "read past the end", op: opRead, n: 16, to: size - 8, status: ibv.IBV_WC_REM_ACCESS_ERR, recv: flushed},
	{name: "send with a key that does not exist", op: opSend, n: 8, change: func(a *end, _ *ibv.SendWR) { a.sge[1].LKey ^= 0xff }, status: ibv.IBV_WC_LOC_PROT_ERR},
	{name: "send of what lies past the own end", op: opSend, n: 16, change: func(a *end, _ *ibv.SendWR) { a.sge[1].Addr += size - 8 }, status: ibv.IBV_WC_LOC_PROT_ERR},
	{name: "write with the remote key as the own", op: opWrite, n: 8, change: func(a *end, _ *ibv.SendWR) { a.sge[1].LKey = 0 }, status: ibv.IBV_WC_LOC_PROT_ERR},
	{name: "send into a receive that is too small", op: opSend, n: 16, room: 15, status: ibv.IBV_WC_REM_INV_REQ_ERR, recv: ibv.IBV_WC_LOC_LEN_ERR},
	{name: "send into a receive past its end", op: opSend, n: 16, room: size + 1, status: ibv.IBV_WC_REM_OP_ERR, recv: ibv.IBV_WC_LOC_PROT_ERR},
	{name: "write with a key that was deregistered", op: opWrite, n: 8, key: renew, status: ibv.IBV_WC_REM_ACCESS_ERR, recv: flushed},
	{name: "write with a key of another domain", op: opWrite, n: 8, key: foreign, status: ibv.IBV_WC_REM_ACCESS_ERR, recv: flushed},
}

// renew registers the memory of an end again.
func renew(b *end) {
	old := b.mr.RKey()
	b.w.must(b.mr.Close())
	var err error
	b.mr, err = b.pd.RegMR(ibv.AddrOf(&b.buf[0]), size, all)
	b.w.must(err)
	if b.mr.RKey() == old {
		b.w.Errorf("the key %#x was given out again at once", old)
	}
}

// foreign registers the memory of an end in another domain than its queue pair's.
func foreign(b *end) {
	pd, err := b.ctx.AllocPD()
	b.w.must(err)
	mr, err := pd.RegMR(ibv.AddrOf(&b.buf[0]), size, all)
	b.w.must(err)
	b.peer.wr[1].RKey = mr.RKey()
	stop := b.stop
	b.stop = func() {
		stop()
		b.w.must(mr.Close(), pd.Close())
	}
}

// row is the violation on a pair of ends.
func (v violation) row() row {
	if v.access == 0 {
		v.access = all
	}
	if v.room == 0 {
		v.room = 8
	}
	return on(v.name, func(a, b *end) {
		b.postRecv(7, 0, v.room)
		b.postRecv(8, 0, 8)
		wr := a.send(1, v.op, 0, v.n, v.to, 0) // errors show also of what was not signalled
		if v.change != nil {
			v.change(a, wr)
		}
		if v.key != nil {
			v.key(b)
		}
		a.posted(wr)
		a.want(1, v.status)
		isFailed(a)
		if v.recv == 0 {
			b.none()
			b.state(rts)
			return
		}
		b.want(7, v.recv)
		b.want(8, flushed)
		if e := b.event(ibv.IBV_EVENT_QP_ACCESS_ERR, ibv.IBV_EVENT_QP_REQ_ERR); e.QP != b.qp || e.QPN != b.qp.Num() {
			b.w.Errorf("the event is of %v", e)
		}
		isFailed(b)
	}, wish{}, wish{access: v.access, qpAccess: v.qp})
}

// isFailed wants a queue pair to be in error: what is posted comes back.
func isFailed(e *end) {
	e.w.Helper()
	e.state(failed)
	e.posted(e.send(30, opWrite, 0, 8, 0, 0))
	e.want(30, flushed)
	e.postRecv(31, 0, 8)
	e.want(31, flushed)
	e.none()
}

// errorRows are about what is refused, and what is flushed then.
var errorRows = append(violationRows(),
	on("what was posted before the mistake is done, what comes after is flushed", func(a, b *end) {
		a.fill(0, 8, 5)
		for i := range 4 {
			wr := a.send(i, opWrite, 0, 8, i*8, 0)
			if i == 2 {
				wr.RKey ^= 0xff
			}
			a.posted(wr)
		}
		a.want(2, ibv.IBV_WC_REM_ACCESS_ERR)
		a.want(3, flushed)
		a.none()
		same(a.w, a.buf[:8], b.buf[8:16])
	}),
	on("an own mistake waits for what was posted before it", func(a, b *end) {
		a.post(1, opWrite, 0, 200_000, 0)
		wr := a.send(2, opWrite, 0, 8, 0, signaled)
		a.sge[2].LKey ^= 0xff
		a.posted(wr)
		a.post(3, opWrite, 0, 8, 0)
		a.want(1, ok)
		a.want(2, ibv.IBV_WC_LOC_PROT_ERR)
		a.want(3, flushed)
	}),
	on("all is flushed, in the order of posting", func(a, b *end) {
		a.w.faults.stall()
		for i := range 5 {
			a.postRecv(10+i, 0, 8)
			a.posted(a.send(i, opWrite, 0, 8, 0, 0))
		}
		a.w.must(a.to(failed))
		var sends, recvs []uint64
		for range 10 {
			wc := a.completion()
			if wc.Status != flushed {
				a.w.Fatalf("request %d has status %d", wc.WRID, wc.Status)
			}
			if wc.WRID >= 10 {
				recvs = append(recvs, wc.WRID-10)
			} else {
				sends = append(sends, wc.WRID)
			}
		}
		for i := range 5 {
			if sends[i] != uint64(i) || recvs[i] != uint64(i) {
				a.w.Fatalf("sends %v, receives %v", sends, recvs)
			}
		}
		isFailed(a)
		a.w.faults.mend()
	}),
	on("a queue pair in error can be connected again", func(a, b *end) {
		a.w.must(a.to(failed), b.to(failed))
		isFailed(a)
		for _, s := range []uint32{reset, initS, rtr, rts} {
			a.w.must(a.to(s), b.to(s))
		}
		want := a.fill(0, 5000, 1)
		a.post(1, opWrite, 0, 5000, 0)
		a.want(1, ok)
		same(a.w, want, b.buf[:5000])
	}),
	on("a receiver that is not ready, and no patience", func(a, b *end) {
		a.post(1, opSend, 0, 8, 0)
		a.want(1, ibv.IBV_WC_RNR_RETRY_EXC_ERR)
		isFailed(a)
		b.state(rts)
		b.none()
	}, wish{rnr: 0}),
	on("a receiver that is not ready in the end", func(a, b *end) {
		a.fill(0, 3000, 2)
		a.post(1, opWriteImm, 0, 3000, 0)
		a.want(1, ibv.IBV_WC_RNR_RETRY_EXC_ERR)
		b.none()
	}, wish{rnr: 3}),
	on("a receiver that becomes ready", func(a, b *end) {
		want := a.fill(0, 3000, 2)
		for i, op := range []uint32{opSend, opWriteImm} {
			a.post(i, op, 0, 3000, 0)
			for range 50 {
				a.w.pause()
			}
			a.none()
			b.postRecv(i, 0, 3000)
			a.want(i, ok)
			b.want(i, ok)
			same(a.w, want, b.buf[:3000])
			clear(b.buf[:3000])
		}
	}, wish{rnr: 7}),
	on("a write passes no receiver that is not ready", func(a, b *end) {
		a.fill(0, 8, 2)
		clear(b.buf[:8])
		a.post(1, opSend, 0, 8, 100)
		a.post(2, opWrite, 0, 8, 0)
		for range 50 {
			a.w.pause()
		}
		same(a.w, b.buf[:8], make([]byte, 8))
		b.postRecv(1, 500, 8)
		a.want(1, ok)
		a.want(2, ok)
		same(a.w, a.buf[:8], b.buf[:8])
		b.want(1, ok)
	}, wish{rnr: 7}),
	on("a read that the peer does not answer", func(a, b *end) {
		a.post(1, opRead, 0, 8, 0)
		a.want(1, ibv.IBV_WC_REM_INV_REQ_ERR)
	}, wish{}, wish{readsIn: -1}),
)

func violationRows() (all []row) {
	for _, v := range violations {
		all = append(all, v.row())
	}
	return all
}
