package conformance

import (
	"errors"
	"fmt"
	"syscall"

	"ncclmesh/ibv"
)

// lengths are those around packets of 1,024 bytes and bursts of 16 and 64 KiB.
var lengths = []int{0, 1, 8, 1023, 1024, 1025, 5000, 16384, 16385, 65537, 300_000}

// dataRows are about what goes well.
var dataRows = []row{
	on("write", func(a, b *end) { transfers(a, b, opWrite) }),
	on("write with immediate", func(a, b *end) { transfers(a, b, opWriteImm) }),
	on("send", func(a, b *end) { transfers(a, b, opSend) }),
	on("send with immediate", func(a, b *end) { transfers(a, b, opSendImm) }),
	on("read", func(a, b *end) { transfers(a, b, opRead) }),
	on("requests complete in the order of posting", func(a, b *end) {
		sizes := []int{100_000, 1, 50_000, 0, 3000}
		for i, n := range sizes {
			a.post(i, []uint32{opWrite, opRead}[i%2], i*100_000, n, i*100_000)
		}
		for i := range sizes {
			a.want(i, ok)
		}
	}),
	on("receives are taken in the order of posting", func(a, b *end) {
		for i := range 4 {
			b.postRecv(i, i*1000, 1000)
		}
		for i, op := range []uint32{opSend, opWriteImm, opSendImm, opWriteImm} {
			a.post(i, op, 0, 10, 0)
		}
		for i := range 4 {
			a.want(i, ok)
			b.want(i, ok)
		}
	}),
	on("a write takes no receive", func(a, b *end) {
		b.postRecv(1, 0, 10)
		a.post(1, opWrite, 0, 10, 0)
		a.want(1, ok)
		b.none()
		a.post(2, opSend, 0, 10, 0)
		a.want(2, ok)
		b.want(1, ok)
	}),
	on("gather and scatter lists", func(a, b *end) {
		want := a.fill(0, 6000, 1)
		a.sge[0], a.sge[1], a.sge[2] = a.span(0, 1), a.span(1, 2999), a.span(3000, 3000)
		b.sge[0], b.sge[1] = b.span(0, 2500), b.span(2500, 5000)
		wr := a.send(5, opSend, 0, 0, 0, signaled)
		wr.SGList, wr.NumSGE = ibv.AddrOf(&a.sge[0]), 3
		recv := b.receive(6, 0, 0)
		recv.SGList, recv.NumSGE = ibv.AddrOf(&b.sge[0]), 2
		_, err := b.qp.PostRecv(recv)
		a.w.must(err)
		a.posted(wr)
		a.want(5, ok)
		if wc := b.want(6, ok); wc.ByteLen != 6000 {
			a.w.Errorf("%d bytes", wc.ByteLen)
		}
		same(a.w, want, b.buf[:6000])
	}),
	on("inline data is copied when it is posted", func(a, b *end) {
		want := append([]byte(nil), a.fill(0, 64, 9)...)
		wr := a.send(1, opWrite, 0, 64, 100, signaled|ibv.IBV_SEND_INLINE)
		a.sge[1].LKey = 0x999 // not looked at
		a.posted(wr)
		a.fill(0, 64, 77)
		a.want(1, ok)
		same(a.w, want, b.buf[100:164])
	}, wish{inline: 64}),
	on("what was not signalled shows nowhere", func(a, b *end) {
		b.postRecv(1, 0, 8)
		a.posted(a.send(1, opWrite, 0, 8, 0, 0))
		a.posted(a.send(2, opSend, 0, 8, 0, 0))
		a.post(3, opWrite, 0, 8, 0)
		a.want(3, ok)
		a.none()
		b.want(1, ok)
	}),
	on("all complete where the queue pair signals all", func(a, b *end) {
		for i := range 3 {
			a.posted(a.send(i, opWrite, 0, 8, 0, 0))
		}
		for i := range 3 {
			a.want(i, ok)
		}
	}, wish{sigAll: true}),
	on("a chain is posted as one", func(a, b *end) {
		for i := range 5 {
			wr := a.send(i, opWrite, i*8, 8, i*8, signaled)
			if i < 4 {
				wr.Next = ibv.AddrOf(&a.wr[i+1])
			}
		}
		a.posted(&a.wr[0])
		for i := range 5 {
			a.want(i, ok)
		}
	}),
	on("a chain is posted up to the request that is refused", func(a, b *end) {
		for i := range 3 {
			a.send(i, opWrite, 0, 8, 0, signaled)
			a.wr[i].Next = ibv.AddrOf(&a.wr[i+1])
		}
		a.wr[2].Next, a.wr[1].NumSGE = 0, 5
		bad, err := a.qp.PostSend(&a.wr[0])
		if bad != &a.wr[1] || !errors.Is(err, syscall.EINVAL) {
			a.w.Fatalf("refused %p of %p, %v", bad, &a.wr[1], err)
		}
		a.want(0, ok)
		a.none()
	}),
	on("writes to both sides at once", func(a, b *end) {
		x, y := a.fill(0, 200_000, 3), b.fill(0, 200_000, 4)
		a.post(1, opWrite, 0, 200_000, 500_000)
		b.post(2, opWrite, 0, 200_000, 500_000)
		a.want(1, ok)
		b.want(2, ok)
		same(a.w, x, b.buf[500_000:700_000])
		same(a.w, y, a.buf[500_000:700_000])
	}),
	on("a write that is seen is whole but for what follows", func(a, b *end) { // the last bytes come last
		const n = 100_000
		a.fill(0, n, 7)
		a.buf[n-1] = 1
		b.buf[n-1] = 0
		a.post(1, opWrite, 0, n, 0)
		a.w.await("the last byte", func() bool { return b.buf[n-1] == 1 })
		same(a.w, a.buf[:n], b.buf[:n])
		a.want(1, ok)
	}),
	on("a fence waits for what was read", func(a, b *end) {
		b.fill(0, 100_000, 5)
		want := append([]byte(nil), b.buf[:100_000]...)
		a.post(1, opRead, 0, 100_000, 0)
		a.posted(a.send(2, opWrite, 0, 100_000, 500_000, signaled|ibv.IBV_SEND_FENCE)) // what was read goes back
		a.want(1, ok)
		a.want(2, ok)
		same(a.w, want, b.buf[500_000:600_000])
	}),
	on("many reads wait for their turn", func(a, b *end) {
		want := b.fill(0, 12*5000, 6)
		for i := range 12 {
			a.post(i, opRead, i*5000, 5000, i*5000)
		}
		for i := range 12 {
			a.want(i, ok)
		}
		same(a.w, want, a.buf[:12*5000])
	}),
	on("a queue pair to itself", func(a, b *end) {
		a.peer = a
		a.w.must(a.to(ibv.IBV_QPS_RESET), a.to(ibv.IBV_QPS_INIT), a.to(ibv.IBV_QPS_RTR), a.to(ibv.IBV_QPS_RTS))
		want := a.fill(0, 3000, 8)
		a.post(1, opWrite, 0, 3000, 5000)
		a.want(1, ok)
		same(a.w, want, a.buf[5000:8000])
	}),
}

// span is an entry of a gather list.
func (e *end) span(at, n int) ibv.SGE {
	return ibv.SGE{Addr: uint64(ibv.AddrOf(&e.buf[0])) + uint64(at), Length: uint32(n), LKey: e.mr.LKey()}
}

// transfers moves messages of all lengths, both ways.
func transfers(a, b *end, op uint32) {
	takes := op != opWrite && op != opRead
	for i, n := range lengths {
		for _, e := range []*end{a, b} {
			from, to := e, e.peer
			if op == opRead {
				from, to = to, from
			}
			want := from.fill(1000, n, byte(i))
			to.buf[2000+n] = 0xee // a guard
			at, remote := 1000, 2000
			if op == opRead {
				at, remote = 2000, 1000
			}
			if takes {
				e.peer.postRecv(20, 2000, 400_000)
			}
			wr := e.send(i, op, at, n, remote, signaled)
			if n == 0 {
				wr.NumSGE, wr.SGList, wr.RKey = 0, 0, 0xbad // nothing is looked at
			}
			e.posted(wr)
			wc := e.want(i, ok)
			if want := map[uint32]uint32{opRead: ibv.IBV_WC_RDMA_READ, opSend: ibv.IBV_WC_SEND, opSendImm: ibv.IBV_WC_SEND}[op]; wc.Opcode != want && (want != 0 || wc.Opcode != ibv.IBV_WC_RDMA_WRITE) {
				e.w.Errorf("%d bytes: completion of operation %d", n, wc.Opcode)
			}
			if takes {
				received(e.peer.want(20, ok), op, n, e)
			}
			if op == opWrite || op == opRead {
				e.peer.none()
			}
			same(e.w, want, to.buf[2000:2000+n])
			if to.buf[2000+n] != 0xee {
				e.w.Fatalf("%d bytes: one more was written", n)
			}
		}
	}
}

// received checks the completion of a receive.
func received(wc *ibv.WC, op uint32, n int, from *end) {
	wantOp := uint32(ibv.IBV_WC_RECV)
	if op == opWriteImm {
		wantOp = ibv.IBV_WC_RECV_RDMA_WITH_IMM
	}
	imm, flags := uint32(0), uint32(0)
	if op != opSend {
		imm, flags = 0x04030201, ibv.IBV_WC_WITH_IMM
	}
	got := fmt.Sprint(wc.Opcode, wc.ByteLen, wc.WCFlags&ibv.IBV_WC_WITH_IMM)
	if want := fmt.Sprint(wantOp, n, flags); got != want || flags != 0 && wc.Imm != imm {
		from.w.Errorf("operation, bytes and flags are %s, immediate %#x, want %s and %#x", got, wc.Imm, want, imm)
	}
}
