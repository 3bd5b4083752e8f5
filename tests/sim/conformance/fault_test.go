package conformance

import (
	"ncclmesh/ibv"
)

// impatient gives up after a few milliseconds, patient after seconds.
var (
	impatient = wish{timeout: 8, retry: 2, rnr: 7}
	patient   = wish{timeout: 12, retry: 7, rnr: 7}
)

// faultRows are about cables and lost packets.
var faultRows = []row{
	on("a peer that does not answer", func(a, b *end) {
		a.w.faults.stall()
		a.post(1, opWrite, 0, 8, 0)
		a.post(2, opWrite, 0, 8, 0)
		a.want(1, ibv.IBV_WC_RETRY_EXC_ERR)
		a.want(2, flushed)
		isFailed(a)
		b.state(rts) // it has heard nothing
		a.w.faults.mend()
	}, impatient),
	on("a peer that does not answer a read", func(a, b *end) {
		a.w.faults.stall()
		a.post(1, opRead, 0, 5000, 0)
		a.want(1, ibv.IBV_WC_RETRY_EXC_ERR)
		a.w.faults.mend()
	}, impatient),
	on("a break that is over in time is not noticed", func(a, b *end) {
		for _, op := range []uint32{opWrite, opSend, opWriteImm, opRead} {
			from, to := a, b
			if op == opRead {
				from, to = b, a
			}
			want := from.fill(0, 50_000, byte(op))
			clear(to.buf[:50_000])
			b.postRecv(1, 0, 50_000)
			a.w.faults.stall()
			a.post(1, op, 0, 50_000, 0)
			for range 5 {
				a.w.pause()
			}
			a.none()
			a.w.faults.mend()
			a.want(1, ok)
			same(a.w, want, to.buf[:50_000])
			if op == opSend || op == opWriteImm {
				b.want(1, ok)
			} else { // the receive is still there
				a.post(2, opSend, 0, 0, 0)
				a.want(2, ok)
				b.want(1, ok)
			}
			b.none()
		}
	}, patient).inTime(),
	on("a lost acknowledgement is made up for, and nothing is done twice", func(a, b *end) {
		a.fill(0, 5000, 3)
		for i := range 3 {
			b.postRecv(i, i*5000, 5000)
		}
		a.w.faults.loseAcks(1)
		for i := range 3 {
			a.post(i, opSend, 0, 5000, 0)
		}
		for i := range 3 {
			a.want(i, ok)
			b.want(i, ok)
			same(a.w, a.buf[:5000], b.buf[i*5000:i*5000+5000])
		}
		b.none()
		a.w.faults.mend()
	}, patient),
	on("acknowledgements that stay lost: the data has landed, and the sender does not know", func(a, b *end) {
		want := a.fill(0, 5000, 4)
		b.postRecv(1, 0, 8)
		a.w.faults.loseAcks(100)
		a.post(1, opWriteImm, 0, 5000, 0)
		a.want(1, ibv.IBV_WC_RETRY_EXC_ERR)
		b.want(1, ok)
		same(a.w, want, b.buf[:5000])
		b.state(rts)
		b.none()
		a.w.faults.mend()
	}, impatient),
	on("a cable that is pulled", func(a, b *end) {
		a.w.faults.unplug()
		for _, e := range []*end{a, b} {
			if ev := e.event(ibv.IBV_EVENT_PORT_ERR); ev.Port != 1 {
				e.w.Errorf("the event is of %v", ev)
			}
			attr, err := e.ctx.QueryPort(1)
			e.w.must(err)
			if attr.State != ibv.IBV_PORT_DOWN {
				e.w.Errorf("the port is in state %d", attr.State)
			}
			e.state(rts)
		}
		a.post(1, opWrite, 0, 8, 0)
		a.want(1, ibv.IBV_WC_RETRY_EXC_ERR)
		a.w.faults.mend()
		for _, e := range []*end{a, b} {
			e.event(ibv.IBV_EVENT_PORT_ACTIVE)
		}
		b.state(rts)
	}, impatient),
	on("a cable that is pulled and plugged in again in time", func(a, b *end) {
		a.w.faults.unplug()
		a.post(1, opWrite, 0, 100_000, 0)
		a.event(ibv.IBV_EVENT_PORT_ERR)
		a.w.faults.mend()
		a.want(1, ok)
		a.event(ibv.IBV_EVENT_PORT_ACTIVE)
	}, wish{timeout: 18, retry: 7}).inTime(),
	on("no neighbour behind a cable that is out", func(a, b *end) {
		a.w.faults.unplug()
		if err := a.to(rtr); err == nil {
			a.w.Error("a neighbour was found")
		}
		a.state(initS)
		a.w.faults.mend()
		a.event(ibv.IBV_EVENT_PORT_ACTIVE)
		a.w.must(a.to(rtr))
	}, wish{state: initS}),
	on("a peer's queue pair that is gone", func(a, b *end) {
		old := b.qp
		b.qp = nil
		b.w.must(old.Close())
		a.post(1, opWrite, 0, 8, 0)
		a.want(1, ibv.IBV_WC_RETRY_EXC_ERR)
	}, impatient),
	on("a peer's queue pair in error", func(a, b *end) {
		b.w.must(b.to(failed))
		a.post(1, opWrite, 0, 8, 0)
		a.want(1, ibv.IBV_WC_RETRY_EXC_ERR)
	}, impatient),
	on("a queue pair hears its peer alone", func(a, b *end) {
		c := newEnd(a.w, "rdma0", impatient)
		c.peer = b
		b.fill(0, 8, 1)
		want := append([]byte(nil), b.buf[:8]...)
		attr, mask := c.attributes(rts)
		attr.SQPSN = a.psn() // what b expects of a
		a.w.must(c.to(initS), c.to(rtr), c.qp.Modify(attr, mask))
		c.post(1, opWrite, 0, 8, 0)
		c.want(1, ibv.IBV_WC_RETRY_EXC_ERR)
		same(a.w, want, b.buf[:8])
		a.post(2, opWrite, 0, 8, 100)
		a.want(2, ok)
		c.close()
	}),
	on("packets that begin elsewhere than the peer expects", func(a, b *end) {
		attr, mask := a.attributes(rts)
		attr.SQPSN = 0x1000
		a.w.must(a.qp.Modify(attr, mask))
		a.post(1, opWrite, 0, 8, 0)
		a.want(1, ibv.IBV_WC_RETRY_EXC_ERR)
	}, wish{state: rtr, timeout: 8, retry: 2}, wish{}),
}
