package ncclnet

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/fault"
)

const page = 4096

// pair is a connection with a region on each side.
func pair(t *testing.T) (n *testNet, send, recv, smr, rmr Handle) {
	n = newTestNet(t)
	send, recv = n.connection(n.init())
	smr, r := n.RegMr(send, page, page, NCCL_PTR_HOST)
	n.ok("regMr", r)
	rmr, r = n.RegMr(recv, 2*page, page, NCCL_PTR_HOST)
	n.ok("regMr", r)
	return n, send, recv, smr, rmr
}

func TestGroupOfReceives(t *testing.T) {
	n, send, recv, smr, rmr := pair(t)
	if q, r := n.Isend(send, page, 8, 0, smr, 0); q != 0 || r != ncclSuccess {
		t.Fatalf("isend with no receive posted: %v, %v; want none", q, r)
	}
	bufs := []Buffer{{2 * page, 100, 1, rmr, 0}, {2*page + 100, 100, 2, rmr, 0}, {2*page + 200, 0, 3, 0, 0}}
	q, r := n.Irecv(recv, bufs)
	n.ok("irecv", r)
	if q <= 1 {
		t.Fatalf("request %v", q)
	}
	var sizes Sizes
	for _, size := range []uint32{10, 20, 0} {
		if done, r := n.Test(q, &sizes); done || r != ncclSuccess {
			t.Fatalf("test: %v, %v", done, r)
		}
		sq, r := n.Isend(send, page, int(size), 0, smr, 0)
		n.ok("isend", r)
		sizes = Sizes{1, 2, 3, 4, 5, 6, 7, 8} // NCCL's array may end with the last message
		done, r := n.Test(sq, &sizes)
		n.ok("test", r)
		if want := (Sizes{size, 2, 3, 4, 5, 6, 7, 8}); !done || sizes != want {
			t.Fatalf("send of %d: done %v, sizes %v, want %v", size, done, sizes, want)
		}
		if _, r := n.Test(sq, &sizes); r != ncclInvalidArgument {
			t.Errorf("test of a request that is done: %v", r)
		}
	}
	done, r := n.Test(q, &sizes)
	n.ok("test", r)
	if !done {
		t.Fatal("the group is not done")
	}
	if diff := cmp.Diff(Sizes{10, 20, 0, 4, 5, 6, 7, 8}, sizes); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
}

func TestRequestsRunOut(t *testing.T) {
	n, send, recv, smr, rmr := pair(t)
	bufs := []Buffer{{2 * page, 8, 0, rmr, 0}}
	var posted []Handle
	for {
		q, r := n.Irecv(recv, bufs)
		n.ok("irecv", r)
		if q == 0 {
			break
		}
		posted = append(posted, q)
	}
	if len(posted) != 32 {
		t.Fatalf("%d receives posted", len(posted))
	}
	seen := map[Handle]bool{}
	for _, q := range posted {
		if seen[q] || q <= 1 {
			t.Errorf("request %v is not unique or reserved", q)
		}
		seen[q] = true
	}
	var sizes Sizes
	sq, r := n.Isend(send, page, 8, 0, smr, 0)
	n.ok("isend", r)
	if done, _ := n.Test(sq, &sizes); !done {
		t.Error("send not done")
	}
	if done, _ := n.Test(posted[0], &sizes); !done {
		t.Error("receive not done")
	}
	again, r := n.Irecv(recv, bufs)
	n.ok("irecv", r)
	if again == 0 || seen[again] {
		t.Errorf("request %v; want a new one", again)
	}
	if again.requestIndex() != posted[0].requestIndex() {
		t.Errorf("index %d, want %d again", again.requestIndex(), posted[0].requestIndex())
	}
	// The first holder of the index still has its handle.
	if _, r := n.Test(posted[0], &sizes); r != ncclInvalidArgument {
		t.Errorf("test of the stale request: %v", r)
	}
}

func TestWrongArguments(t *testing.T) {
	n, send, recv, smr, rmr := pair(t)
	_, otherRecv := n.connection(n.init())
	n.files = nil
	var sizes Sizes
	isend := func(comm, mr Handle, size int) Result { _, r := n.Isend(comm, page, size, 0, mr, 0); return r }
	irecv := func(comm Handle, bufs ...Buffer) Result { _, r := n.Irecv(comm, bufs); return r }
	test := func(h Handle) Result { _, r := n.Test(h, &sizes); return r }
	regMr := func(comm Handle, addr, length uintptr, ptr int) Result {
		_, r := n.RegMr(comm, addr, length, ptr)
		return r
	}
	accept := func(h Handle) Result { _, r := n.Accept(h); return r }
	iflush := func(comm Handle, bufs ...Buffer) Result { _, r := n.Iflush(comm, bufs); return r }
	tests := []struct {
		name string
		got  Result
	}{
		{"isend on NULL", isend(0, smr, 8)},
		{"isend on garbage", isend(0x7f0012345678, smr, 8)},
		{"isend on a recvComm", isend(recv, rmr, 8)},
		{"isend of a negative size", isend(send, smr, -1)},
		{"isend without memory", isend(send, 0, 8)},
		{"isend from another connection's memory", isend(send, rmr, 8)},
		{"isend from a connection as memory", isend(send, send, 8)},
		{"irecv on a sendComm", irecv(send, Buffer{MR: smr})},
		{"irecv of nothing", irecv(recv)},
		{"irecv of too much", irecv(recv, make([]Buffer, MaxRecvs+1)...)},
		{"irecv of a negative size", irecv(recv, Buffer{Size: -1, MR: rmr})},
		{"irecv into another connection's memory", irecv(otherRecv, Buffer{Size: 8, MR: rmr})},
		{"test of NULL", test(0)},
		{"test of 0x1", test(1)},
		{"test of garbage", test(0x7f0012345678)},
		{"test of a connection", test(send)},
		{"test of a request never posted", test(send.request(7, 1))},
		{"iflush on a sendComm", iflush(send)},
		{"iflush of another connection's memory", iflush(otherRecv, Buffer{Addr: page, Size: 8, MR: rmr})},
		{"iflush of garbage", iflush(recv, Buffer{Addr: page, Size: 8, MR: 0x7f0012345678})},
		{"regMr on NULL", regMr(0, page, page, NCCL_PTR_HOST)},
		{"regMr of device memory", regMr(send, page, page, 2)},
		{"regMr of NULL", regMr(send, 0, page, NCCL_PTR_HOST)},
		{"regMr past the end", regMr(send, page, ^uintptr(0), NCCL_PTR_HOST)},
		{"deregMr of another connection's", n.DeregMr(send, rmr)},
		{"deregMr with NULL as the connection", n.DeregMr(0, smr)},
		{"deregMr of a connection", n.DeregMr(send, send)},
		{"deregMr of garbage", n.DeregMr(send, 0x7f0012345678)},
		{"closeSend of garbage", n.CloseSend(0x7f0012345678)},
		{"closeRecv of 0x1", n.CloseRecv(1)},
		{"closeListen of a handle that was never given out", n.CloseListen(newHandle(kindListen, 9, 1))},
		{"accept on NULL", accept(0)},
		{"closeSend of a recvComm", n.CloseSend(recv)},
		{"closeRecv of a sendComm", n.CloseRecv(send)},
		{"closeListen of a sendComm", n.CloseListen(send)},
	}
	for _, tt := range tests {
		if tt.got != ncclInvalidArgument {
			t.Errorf("%s: %v, want ncclInvalidArgument", tt.name, tt.got)
		}
	}
	// Every line says where it comes from.
	if slices.Contains(n.files, "net.go") || !slices.Contains(n.files, "request.go") || !slices.Contains(n.files, "comm.go") {
		t.Errorf("source files of log lines: %v", n.files)
	}
	n.ok("iflush", iflush(recv))
	n.ok("deregMr(NULL)", n.DeregMr(send, 0))
	n.ok("deregMr", n.DeregMr(send, smr))
	if r := isend(send, smr, 8); r != ncclInvalidArgument {
		t.Errorf("isend after deregMr: %v", r)
	}
}

func TestCloseReclaimsRegions(t *testing.T) {
	n, send, recv, _, _ := pair(t)
	_, r := n.RegMrDmaBuf(send, page, page, NCCL_PTR_HOST, 0, 3)
	n.ok("regMrDmaBuf", r)
	n.ok("closeSend", n.CloseSend(send))
	if diff := cmp.Diff(map[string]int{"receiver": 1, "region": 1}, n.f.open); diff != "" {
		t.Errorf("open (-want +got):\n%s", diff)
	}
	n.ok("closeRecv", n.CloseRecv(recv))
	if diff := cmp.Diff(map[string]int{}, n.f.open); diff != "" {
		t.Errorf("open (-want +got):\n%s", diff)
	}
}

func TestPeerLost(t *testing.T) {
	n, send, recv, smr, rmr := pair(t)
	q, r := n.Irecv(recv, []Buffer{{2 * page, 8, 0, rmr, 0}})
	n.ok("irecv", r)
	c, err := n.sends.find(send)
	if err != nil {
		t.Fatal(err)
	}
	c.conn.(*fakeSender).p.err = fmt.Errorf("node-b: %w", fault.ErrPeer)
	n.logged()
	var sizes Sizes
	if done, r := n.Test(q, &sizes); done || r != ncclRemoteError {
		t.Errorf("test: %v, %v", done, r)
	}
	if q, r := n.Isend(send, page, 8, 0, smr, 0); q != 0 || r != ncclRemoteError {
		t.Errorf("isend: %v, %v", q, r)
	}
	if q, r := n.Irecv(recv, []Buffer{{2 * page, 8, 0, rmr, 0}}); q != 0 || r != ncclRemoteError {
		t.Errorf("irecv: %v, %v", q, r)
	}
	// NCCL may go on calling: each connection has said what happened, once.
	for range 3 {
		if _, r := n.Test(q, &sizes); r != ncclRemoteError {
			t.Errorf("test, again: %v", r)
		}
	}
	want := []string{"2 NET/Mesh : test: node-b: remote error (ncclRemoteError)", "2 NET/Mesh : isend: node-b: remote error (ncclRemoteError)"}
	if diff := cmp.Diff(want, strings.Split(n.logged(), "\n")); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestDataPathAllocatesNothing(t *testing.T) {
	n, send, recv, smr, rmr := pair(t)
	bufs := []Buffer{{2 * page, 100, 1, rmr, 0}, {2*page + 100, 100, 2, rmr, 0}}
	var sizes Sizes
	got := transporttest.Allocations(1000, func() {
		rq, _ := n.Irecv(recv, bufs)
		for range bufs {
			sq, _ := n.Isend(send, page, 50, 1, smr, 0)
			n.Test(sq, &sizes)
		}
		if done, _ := n.Test(rq, &sizes); !done {
			t.Fatal("not done")
		}
	})
	if got != 0 {
		t.Errorf("%v allocations per round", got)
	}
}

func BenchmarkIsendTest(b *testing.B) {
	n := newTestNet(b)
	send, recv := n.connection(n.init())
	smr, _ := n.RegMr(send, page, page, NCCL_PTR_HOST)
	rmr, _ := n.RegMr(recv, page, page, NCCL_PTR_HOST)
	bufs := []Buffer{{page, 8, 0, rmr, 0}}
	var sizes Sizes
	b.ReportAllocs()
	for b.Loop() {
		rq, _ := n.Irecv(recv, bufs)
		sq, _ := n.Isend(send, page, 8, 0, smr, 0)
		n.Test(sq, &sizes)
		n.Test(rq, &sizes)
	}
}
