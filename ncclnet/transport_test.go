package ncclnet

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/ibv"
	"ncclmesh/tests/transporttest"
)

// The calls go through the real transport, on a simulated machine whose process connects to itself. They leave no
// resources behind, and the plugin can be initialised again.
func TestOverTransport(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		n := &testNet{t: t}
		n.Net = New(NewProcess(Host{
			Getenv: func(string) string { return "" }, Environ: func() []string { return nil }, Machine: transporttest.Options(t).Machine,
		}))
		overTransport(t, n)
	})
}

func overTransport(t *testing.T, n *testNet) {
	ctx := n.init()
	send, recv := realConnection(t, n, ctx)

	const size = 1 << 16
	m, err := ibv.Alloc(2 * size)
	if err != nil {
		t.Fatal(err)
	}
	smr, r := n.RegMr(send, m.Addr(), size, NCCL_PTR_HOST)
	n.ok("regMr", r)
	rmr, r := n.RegMr(recv, m.Addr()+size, size, NCCL_PTR_HOST)
	n.ok("regMr", r)

	var sizes Sizes
	round := func(bytes int) {
		bufs := [1]Buffer{{m.Addr() + size, size, 7, rmr, 0}}
		rq := posted(t, n, func() (Handle, Result) { return n.Irecv(recv, bufs[:]) })
		sq := posted(t, n, func() (Handle, Result) { return n.Isend(send, m.Addr(), bytes, 7, smr, 0) })
		for _, q := range [2]Handle{sq, rq} {
			transporttest.Await(t, "a message", func() bool {
				done, r := n.Test(q, &sizes)
				n.ok("test", r)
				return done
			})
		}
		if int(sizes[0]) != bytes {
			t.Fatalf("received %d bytes of %d", sizes[0], bytes)
		}
	}
	source, sink := m.Bytes()[:size], m.Bytes()[size:2*size]
	for _, bytes := range []int{0, 1, 8, 4095, 4096, size} {
		for i := range source {
			source[i], sink[i] = byte(i*7+bytes), 0xee
		}
		round(bytes)
		if diff := cmp.Diff(source[:bytes], sink[:bytes]); diff != "" {
			t.Errorf("%d bytes (-sent +received):\n%s", bytes, diff)
		}
		if i := slices.IndexFunc(sink[bytes:], func(b byte) bool { return b != 0xee }); i >= 0 {
			t.Errorf("%d bytes: byte %d beyond them is overwritten", bytes, i)
		}
	}
	n.ok("closeSend", n.CloseSend(send)) // smr is left to it
	n.ok("deregMr", n.DeregMr(recv, rmr))
	n.ok("closeRecv", n.CloseRecv(recv))
	if err := m.Free(); err != nil {
		t.Error(err)
	}

	// Half-open objects are closed with their communicator.
	_, wire, r := n.Listen(ctx, 0)
	n.ok("listen", r)
	_, r = n.Connect(ctx, 0, &wire)
	n.ok("connect", r)
	n.ok("finalize", n.Finalize(ctx))
	transporttest.Await(t, "the end of all verbs objects", func() bool { return len(ibv.Live()) == 0 })
	// The plugin can be initialised again.
	n.ok("finalize", n.Finalize(n.init()))
}

// realConnection polls connect and accept as NCCL does.
func realConnection(t *testing.T, n *testNet, ctx Handle) (send, recv Handle) {
	l, wire, r := n.Listen(ctx, 0)
	n.ok("listen", r)
	transporttest.Await(t, "the connection", func() bool {
		if send == 0 {
			send, r = n.Connect(ctx, 0, &wire)
			n.ok("connect", r)
		}
		if recv == 0 {
			recv, r = n.Accept(l)
			n.ok("accept", r)
		}
		return send != 0 && recv != 0
	})
	n.ok("closeListen", n.CloseListen(l))
	return send, recv
}

func posted(t *testing.T, n *testNet, post func() (Handle, Result)) (q Handle) {
	transporttest.Await(t, "a call", func() bool {
		var r Result
		q, r = post()
		n.ok("post", r)
		return q != 0
	})
	return q
}
