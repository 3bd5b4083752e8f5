package ibv

import (
	"bytes"
	"errors"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// write carves a gathered write of two halves from and to places in the pair's memory.
func (p *pair) write(id uint64, from, to, n int) *SendWR {
	sge := Carve[SGE](p.mem, 2)
	half := n / 2
	sge[0] = SGE{Addr: uint64(p.mem.Addr()) + uint64(from), Length: uint32(half), LKey: p.mr.LKey()}
	sge[1] = SGE{Addr: uint64(p.mem.Addr()) + uint64(from+half), Length: uint32(n - half), LKey: p.mr.LKey()}
	wr := &Carve[SendWR](p.mem, 1)[0]
	*wr = SendWR{WRID: id, SGList: AddrOf(&sge[0]), NumSGE: 2, Opcode: IBV_WR_RDMA_WRITE, SendFlags: IBV_SEND_SIGNALED,
		RemoteAddr: uint64(p.mem.Addr()) + uint64(to), RKey: p.mr.RKey()}
	return wr
}

// Places for data at the end of the memory; Carve takes from the front.
const source, target = 1 << 14, 1 << 15

func TestChainsAndBatches(t *testing.T) {
	p := newPair(t)
	data := p.mem.Bytes()
	for i := range 3000 {
		data[source+i] = byte(i * 7)
	}
	recv := Carve[RecvWR](p.mem, 2)
	recv[0].WRID, recv[1].WRID = 100, 101
	recv[0].Next = AddrOf(&recv[1])
	if bad, err := p.qp.PostRecv(&recv[0]); bad != nil || err != nil {
		t.Fatalf("PostRecv: %v, %v", bad, err)
	}

	a, b, c := p.write(1, source, target, 1000), p.write(2, source+1000, target+1000, 1001), p.write(3, source+2001, target+2001, 999)
	a.Next, b.Next = AddrOf(b), AddrOf(c)
	b.SendFlags = 0
	c.Opcode, c.Imm = IBV_WR_RDMA_WRITE_WITH_IMM, 0x78563412
	if bad, err := p.qp.PostSend(a); bad != nil || err != nil {
		t.Fatalf("PostSend: %v, %v", bad, err)
	}
	if !bytes.Equal(data[source:source+3000], data[target:target+3000]) {
		t.Error("the data did not arrive")
	}

	wc := Carve[WC](p.mem, 2)
	var got []WC
	for {
		n, err := p.cq.Poll(wc)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		got = append(got, wc[:n]...)
	}
	want := []WC{
		{WRID: 1, Opcode: IBV_WC_RDMA_WRITE, ByteLen: 1000, QPNum: p.qp.Num()},
		{WRID: 100, Opcode: IBV_WC_RECV_RDMA_WITH_IMM, ByteLen: 999, Imm: 0x78563412, QPNum: p.qp.Num(), WCFlags: IBV_WC_WITH_IMM},
		{WRID: 3, Opcode: IBV_WC_RDMA_WRITE, ByteLen: 999, QPNum: p.qp.Num()},
	}
	if diff := cmp.Diff(len(want), len(got)); diff != "" {
		t.Fatalf("completions (-want +got):\n%s", diff)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("completion %d: got %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestBadRequest(t *testing.T) {
	p := newPair(t)
	a, b := p.write(1, source, target, 8), p.write(0xbad, source, target, 8)
	a.Next = AddrOf(b)
	p.s.fail("post", syscall.ENOMEM)
	bad, err := p.qp.PostSend(a)
	if bad != b || !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("PostSend: got %p, %v, want %p, ENOMEM", bad, err, b)
	}
	recv := Carve[RecvWR](p.mem, 2)
	recv[1].WRID = 0xbad
	recv[0].Next = AddrOf(&recv[1])
	p.s.fail("post", syscall.EINVAL) // as a negative number, as some providers return it
	badRecv, err := p.qp.PostRecv(&recv[0])
	if badRecv != &recv[1] || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("PostRecv: got %p, %v, want %p, EINVAL", badRecv, err, &recv[1])
	}
	if n, err := p.cq.Poll(nil); n != 0 || err != nil {
		t.Errorf("Poll of nothing: %d, %v", n, err)
	}
}

func TestFailedCompletion(t *testing.T) {
	loadStandin(t)
	_, _ = Load() // where there is one, its texts are not those of the library used next
	p := newPair(t)
	wr := p.write(1, source, target, 8)
	wr.RKey = 0xdead
	if _, err := p.qp.PostSend(wr); err != nil {
		t.Fatal(err)
	}
	wc := Carve[WC](p.mem, 4)
	if n, err := p.cq.Poll(wc); n != 1 || err != nil {
		t.Fatalf("Poll: %d, %v", n, err)
	}
	var e *WCError
	if !errors.As(wc[0].Err("node b, port rocep1s0f1"), &e) {
		t.Fatalf("no WCError for %+v", wc[0])
	}
	if got := e.Reason(); got != "no right (IBV_WC_REM_ACCESS_ERR)" {
		t.Errorf("the reason is %q", got)
	}
	const name = "IBV_WC_REM_ACCESS_ERR"
	if got := (&WCError{Status: IBV_WC_REM_ACCESS_ERR, StatusText: name}).Reason(); got != name { // no library knows a text
		t.Errorf("the reason is %q", got)
	}
	want := &WCError{Status: IBV_WC_REM_ACCESS_ERR, StatusText: "no right", VendorErr: 0x88, QPN: p.qp.Num(), Peer: "node b, port rocep1s0f1"}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	e.QPN = 0x1234
	if got, want := e.Error(), "ibv: work request failed on queue pair 0x1234 to node b, port rocep1s0f1: no right "+
		"(status 10 IBV_WC_REM_ACCESS_ERR, vendor error 0x88)"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if err := (&WC{}).Err(""); err != nil {
		t.Errorf("success is %v", err)
	}
}

func TestDataPathAllocatesNothing(t *testing.T) {
	p := newPair(t)
	wr, wc := p.write(1, source, target, 64), Carve[WC](p.mem, 16)
	recv := &Carve[RecvWR](p.mem, 1)[0]
	wr.Opcode = IBV_WR_RDMA_WRITE_WITH_IMM
	allocs := testing.AllocsPerRun(500, func() {
		if _, err := p.qp.PostRecv(recv); err != nil {
			t.Fatal(err)
		}
		if _, err := p.qp.PostSend(wr); err != nil {
			t.Fatal(err)
		}
		if n, err := p.cq.Poll(wc); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := p.cq.Poll(wc); n != 0 || err != nil {
			t.Fatal(n, err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations per post and poll", allocs)
	}
}

// Queue pairs with queues of their own may be driven by different threads.
func TestParallelQueuePairs(t *testing.T) {
	p := newPair(t)
	var wg sync.WaitGroup
	for i := range 4 {
		cq, err := p.ctx.CreateCQ(64, nil)
		if err != nil {
			t.Fatal(err)
		}
		qp, err := p.pd.CreateQP(QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 8, MaxSendSGE: 2, Type: IBV_QPT_RC})
		if err != nil {
			t.Fatal(err)
		}
		defer closeAll(t, qp, cq)
		wr, wc := p.write(uint64(i), source, target+i*64, 64), Carve[WC](p.mem, 4)
		wg.Go(func() {
			for range 2000 {
				if _, err := qp.PostSend(wr); err != nil {
					t.Error(err)
					return
				}
				if n, err := cq.Poll(wc); n != 1 || err != nil || wc[0].WRID != uint64(i) || wc[0].QPNum != qp.Num() {
					t.Errorf("got %d, %v, %+v", n, err, wc[0])
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestCompChannel(t *testing.T) {
	p := newPair(t)
	ch, err := p.ctx.CreateCompChannel()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := p.ctx.CreateCQ(8, ch)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := p.pd.CreateQP(QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 8, MaxSendSGE: 2, Type: IBV_QPT_RC})
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.SetNonblock(); err != nil {
		t.Fatal(err)
	}
	events := func() int {
		t.Helper()
		n, err := ch.Drain()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := events(); n != 0 {
		t.Errorf("%d events before the first completion", n)
	}
	wr := p.write(1, source, target, 8)
	for i := range 3 {
		if err := cq.ReqNotify(false); err != nil {
			t.Fatal(err)
		}
		if _, err := qp.PostSend(wr); err != nil {
			t.Fatal(err)
		}
		if n := events(); n != 1 {
			t.Fatalf("completion %d brought %d events, want 1", i, n)
		}
	}
	if n := testing.AllocsPerRun(20, func() {
		if err := cq.ReqNotify(false); err != nil {
			t.Fatal(err)
		}
		events()
		if _, err := qp.PostSend(wr); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("an event allocates %v times", n)
	}
	if n := events(); n != 1 {
		t.Errorf("%d events are left, want the last one", n)
	}
	closeAll(t, qp, cq, ch) // the stand-in refuses this unless all events were acknowledged
}

func BenchmarkPostPoll(b *testing.B) {
	p := newPair(b)
	wr, wc := p.write(1, source, target, 8), Carve[WC](p.mem, 16)
	b.Run("Go", func(b *testing.B) {
		for b.Loop() {
			if _, err := p.qp.PostSend(wr); err != nil {
				b.Fatal(err)
			}
			if n, err := p.cq.Poll(wc); n != 1 || err != nil {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("C", func(b *testing.B) {
		ns := p.s.call("standin_loop", p.qp.info.Handle, AddrOf(wr), p.cq.info.Handle, uintptr(unsafe.Pointer(&wc[0])), uintptr(b.N))
		if ns == 0 {
			b.Fatal("the loop in C failed")
		}
		b.ReportMetric(float64(ns)/float64(b.N), "ns/op")
	})
}
