package ncclnet

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/ibv"
	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
	"ncclmesh/tests/transporttest"
)

// TestOverFakeverbs takes the calls through the real transport and a libibverbs
// that needs no hardware. That one reads C's environment, so the test runs in a
// process of its own that starts with it.
func TestOverFakeverbs(t *testing.T) {
	if os.Getenv("FAKEVERBS_DIR") != "" {
		overFakeverbs(t)
		return
	}
	build, err := fabric.Build("ncclnet", "fakeverbs")
	if errors.Is(err, fabric.ErrUnable) {
		require.Skip(t, require.Fake, err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	f, err := fabric.Up(fabric.Tools(build), fabric.Triangle().Topology())
	if errors.Is(err, fabric.ErrUnable) {
		require.Skip(t, require.Netns, err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	cmd := f.Command(t.Context(), f.Nodes[0], os.Args[0], "-test.run=^TestOverFakeverbs$", "-test.v")
	out, err := cmd.CombinedOutput()
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}

func overFakeverbs(t *testing.T) {
	n := &testNet{t: t}
	n.Net = New(NewProcess(Host{Getenv: os.Getenv, Environ: os.Environ}))
	ctx := n.init()
	send, recv := realConnection(n, ctx)

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
		rq := posted(t, func() (Handle, Result) { return n.Irecv(recv, bufs[:]) })
		sq := posted(t, func() (Handle, Result) { return n.Isend(send, m.Addr(), bytes, 7, smr, 0) })
		for _, q := range [2]Handle{sq, rq} {
			for done := false; !done; {
				var r Result
				if done, r = n.Test(q, &sizes); r != ncclSuccess {
					t.Fatalf("test: %v\n%s", r, n.logged())
				}
			}
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
	if got := transporttest.Allocations(500, func() { round(100) }); got != 0 {
		t.Errorf("%v allocations per message", got)
	}

	n.ok("closeSend", n.CloseSend(send)) // smr is left to it
	n.ok("deregMr", n.DeregMr(recv, rmr))
	n.ok("closeRecv", n.CloseRecv(recv))
	if err := m.Free(); err != nil {
		t.Error(err)
	}

	// Half-open objects go with their communicator.
	_, wire, r := n.Listen(ctx, 0)
	n.ok("listen", r)
	_, r = n.Connect(ctx, 0, &wire)
	n.ok("connect", r)
	n.ok("finalize", n.Finalize(ctx))
	for end := time.Now().Add(2 * time.Minute); len(ibv.Live()) > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if diff := cmp.Diff(map[string]int{}, ibv.Live()); diff != "" {
		t.Errorf("left after finalize (-want +got):\n%s", diff)
	}
	// And the plugin starts over.
	n.ok("finalize", n.Finalize(n.init()))
}

// realConnection polls connect and accept as NCCL does.
func realConnection(n *testNet, ctx Handle) (send, recv Handle) {
	l, wire, r := n.Listen(ctx, 0)
	n.ok("listen", r)
	for end := time.Now().Add(2 * time.Minute); send == 0 || recv == 0; {
		if time.Now().After(end) {
			n.t.Fatalf("not connected\n%s", n.logged())
		}
		if send == 0 {
			send, r = n.Connect(ctx, 0, &wire)
			n.ok("connect", r)
		}
		if recv == 0 {
			recv, r = n.Accept(l)
			n.ok("accept", r)
		}
	}
	n.ok("closeListen", n.CloseListen(l))
	return send, recv
}

func posted(t *testing.T, post func() (Handle, Result)) Handle {
	for {
		q, r := post()
		if r != ncclSuccess {
			t.Fatalf("post: %v", r)
		}
		if q != 0 {
			return q
		}
	}
}
