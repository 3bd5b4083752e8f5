package ncclnet

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/cuda"
	"ncclmesh/ibv"
	"ncclmesh/ncclnet/gpudirect"
	"ncclmesh/ncclnet/rma"
	"ncclmesh/tests/transporttest"
)

// newRMANet returns a plugin on a simulated machine whose adapters reach GPU memory.
func newRMANet(t *testing.T) *testNet {
	for _, m := range transporttest.WorldOf(t).Machines {
		m.LoadPeerMemory()
	}
	n := &testNet{t: t, env: map[string]string{"NCCL_MESH_TRANSPORT": "rdma"}, gpu: gpuWith(cuda.Attributes{GPUDirectRDMA: true, GPUDirectRDMAWithVMM: true})}
	n.Net = New(NewProcess(Host{
		Getenv: func(name string) string { return n.env[name] }, Environ: func() []string { return nil },
		Machine: transporttest.Options(t).Machine, GPU: n.gpu,
	}))
	return n
}

// rmaInit opens a context of the RMA interface.
func (n *testNet) rmaInit() Handle {
	n.t.Helper()
	h, r := n.RMAInit(n.logger(), 23007)
	n.ok("RMA init", r)
	return h
}

// rmaGroup connects two ranks of one process.
func (n *testNet) rmaGroup(ctx Handle) (groups [2]Handle) {
	n.t.Helper()
	var listens [2]Handle
	var wires []*[HandleSize]byte
	for i := range listens {
		h, wire, r := n.RMAListen(ctx, 0)
		n.ok("RMA listen", r)
		listens[i], wires = h, append(wires, &wire)
	}
	var all sync.WaitGroup
	for i := range listens {
		all.Go(func() {
			var r Result
			groups[i], r = n.RMAConnect(wires, i, listens[i])
			n.ok("RMA connect", r)
		})
	}
	all.Wait()
	for _, l := range listens {
		n.ok("RMA closeListen", n.RMACloseListen(l))
	}
	return groups
}

// Two communicators of the interface are open in one process, as NCCL's host RMA and GIN proxy open them. Everything is closed in NCCL's order, in
// which the network's context goes first, and nothing is left behind.
func TestRMA(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		n := newRMANet(t)
		net := n.init()
		contexts := [2]Handle{n.rmaInit(), n.rmaInit()}
		if n := strings.Count(n.logged(), "can use the mesh"); n != 1 {
			t.Errorf("%d lines say that one-sided communication is offered, want 1", n)
		}
		devices, r := n.RMADevices()
		n.ok("RMA devices", r)
		plain, r := n.Properties(0)
		n.ok("getProperties", r)
		plain.NetDeviceType = NCCL_NET_DEVICE_GIN_PROXY
		props, r := n.RMAProperties(0)
		n.ok("RMA getProperties", r)
		if diff := cmp.Diff(plain, props); diff != "" || devices != 1 || props.PtrSupport != NCCL_PTR_HOST|NCCL_PTR_CUDA {
			t.Errorf("%d devices, pointers %d; properties (-of the network +of RMA):\n%s", devices, props.PtrSupport, diff)
		}
		m, err := ibv.Alloc(3 * 4096)
		if err != nil {
			t.Fatal(err)
		}
		for _, ctx := range contexts {
			groups := n.rmaGroup(ctx)
			n.putAndSignal(groups, m)
		}
		n.ok("finalize", n.Finalize(net))
		for _, ctx := range contexts {
			n.ok("RMA finalize", n.RMAFinalize(ctx))
			n.ok("RMA finalize again", n.RMAFinalize(ctx))
		}
		if err := m.Free(); err != nil {
			t.Error(err)
		}
		transporttest.Await(t, "the end of all verbs objects", func() bool { return len(ibv.Live()) == 0 })
	})
}

// putAndSignal registers windows, puts from rank 0 to rank 1, and closes all but the first rank's group, which is left to finalize.
func (n *testNet) putAndSignal(groups [2]Handle, m *ibv.Memory) {
	t := n.t
	var windows, series [2]Handle
	for i, g := range groups {
		var r Result
		windows[i], r = n.RMARegister(g, m.Addr()+uintptr(i*4096), 4096, NCCL_PTR_HOST)
		n.ok("regMrSym", r)
		series[i], r = n.RMACreateContext(g, 1)
		n.ok("createContext", r)
	}
	clear(m.Bytes())
	copy(m.Bytes(), "one-sided")
	at := func(offset uint64) RMARange { return RMARange{windows[0], offset} }
	put := func(s RMASignal) rma.Request {
		q, r := n.RMAPut(series[0], 0, at(0), 9, at(64), 1, &s)
		n.ok("iputSignal", r)
		return q
	}
	requests := []rma.Request{
		put(RMASignal{at(8 * 16), NCCL_NET_SIGNAL_OP_INC, 5}), put(RMASignal{at(8 * 16), NCCL_NET_SIGNAL_OP_ADD, 5}),
	}
	get, r := n.RMAGet(series[0], 0, at(64), 9, at(256), 1)
	n.ok("iget", r)
	flush, r := n.RMAFlush(series[0], 0, 1)
	n.ok("iflush", r)
	for _, q := range append(requests, get, flush) {
		transporttest.Await(t, "an operation", func() bool {
			n.ok("rmaProgress", n.RMAProgress(series[0]))
			done, r := n.RMATest(groups[0], q)
			n.ok("test", r)
			return done
		})
	}
	word := (*atomic.Uint64)(unsafe.Pointer(&m.Bytes()[4096+8*16]))
	transporttest.Await(t, "the signals", func() bool { return word.Load() == 6 })
	if got := string(m.Bytes()[4096+64:][:9]) + string(m.Bytes()[256:][:9]); got != "one-sidedone-sided" {
		t.Errorf("put and got %q", got)
	}
	n.logged()
	for name, call := range map[string]func() Result{
		"a signal operation that is not known": func() Result {
			_, r := n.RMAPut(series[0], 0, at(0), 9, at(64), 1, &RMASignal{at(0), 7, 1})
			return r
		},
		"a window of another group": func() Result {
			_, r := n.RMAPut(series[0], 0, RMARange{windows[1], 0}, 9, at(64), 1, nil)
			return r
		},
		"a deregistration with another group": func() Result { return n.RMADeregister(groups[0], windows[1]) },
		"no window":                           func() Result { _, r := n.RMAGet(series[0], 0, RMARange{}, 9, at(64), 1); return r },
		"no context":                          func() Result { _, r := n.RMAFlush(groups[0], 0, 1); return r },
		"no group":                            func() Result { _, r := n.RMATest(series[0], get); return r },
		"GPU memory by DMA-BUF, which is not offered": func() Result {
			_, r := n.RMARegisterDmaBuf(groups[0], m.Addr(), 4096, NCCL_PTR_CUDA, 0, 9)
			return r
		},
	} {
		if r := call(); r != ncclInvalidArgument || n.logged() == "" {
			t.Errorf("%s: %v", name, r)
		}
	}
	if failed, r := n.RMALastError(series[0]); failed || r != ncclSuccess {
		t.Errorf("queryLastError: %v, %v", failed, r)
	}
	n.ok("destroyContext", n.RMADestroyContext(series[1]))
	n.ok("deregMrSym", n.RMADeregister(groups[1], windows[1]))
	n.ok("closeColl", n.RMACloseColl(groups[1]))
	n.ok("deregMrSym of what closeColl has ended", n.RMADeregister(groups[1], windows[1]))
	if _, r := n.RMAPut(series[1], 0, at(0), 0, at(0), 0, nil); r != ncclInvalidArgument {
		t.Errorf("a put in a context that was destroyed: %v", r)
	}
}

// NCCL asks for the error of a group until the program ends its communicator. That is one line in the log, and nothing is wrong with the
// NCCL that asks.
func TestRMAErrorIsAskedFor(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		n := newRMANet(t)
		ctx := n.rmaInit()
		groups := n.rmaGroup(ctx)
		series, r := n.RMACreateContext(groups[0], 1)
		n.ok("createContext", r)
		n.Panicked("iput", groups[0], "a mistake", nil)
		n.logged()
		for range 3 {
			if failed, r := n.RMALastError(series); !failed || r != ncclSuccess {
				t.Errorf("queryLastError: %v, %v", failed, r)
			}
			transporttest.WorldOf(t).Sleep(useAfterFailure)
		}
		if log := n.logged(); strings.Count(log, "\n") != 0 || !strings.Contains(log, "queryLastError: ") {
			t.Errorf("log:\n%s", log)
		}
		n.ok("RMA finalize", n.RMAFinalize(ctx))
	})
}

// Where GPU memory is not offered there are no devices, and init holds nothing, because NCCL does not call finalize then.
func TestRMANotOffered(t *testing.T) {
	n := newTestNet(t)
	if h := n.rmaInit(); h != 0 || !n.f.closed {
		t.Errorf("init returned %v, and the transport is closed: %v", h, n.f.closed)
	}
	n.init()
	if h := n.rmaInit(); h != 0 {
		t.Errorf("init returned %v", h)
	}
	if devices, r := n.RMADevices(); devices != 0 || r != ncclSuccess {
		t.Errorf("%d devices, %v", devices, r)
	}
	n.ok("RMA finalize", n.RMAFinalize(0))
	if log := n.logged(); strings.Contains(log, "one-sided") {
		t.Errorf("log: %s", log)
	}
}

// Where the mesh offers one-sided communication, NCCL's settings must leave it on, and only what NCCL prefers to it is named.
func TestBypassOfRMA(t *testing.T) {
	const proxy = "NCCL_GIN_TYPE=2 makes NCCL use its proxy, which uses the mesh"
	const both = "NCCL_GIN_TYPE=0 and NCCL_NUM_RMA_CTX=0 keep programs from it"
	for _, tt := range []struct {
		version int
		env     map[string]string
		want    string // the end of the line
		says    string // the end of what init says of the offer
	}{
		{23007, nil, proxy, "can use the mesh"},
		{23102, map[string]string{"NCCL_GIN_TYPE": "3"}, proxy, "can use the mesh"},
		{23007, map[string]string{"NCCL_GIN_TYPE": "2"}, "", "can use the mesh"},
		{23007, map[string]string{"NCCL_GIN_TYPE": "0"}, "", "; NCCL_GIN_TYPE=0 keeps programs from it"},
		{23007, map[string]string{"NCCL_NUM_RMA_CTX": "0"}, proxy, "; NCCL_NUM_RMA_CTX=0 keeps programs from it"},
		{23007, map[string]string{"NCCL_GIN_TYPE": "0", "NCCL_NUM_RMA_CTX": " 0"}, "", "; " + both},
		{23004, nil, both, "can use the mesh"}, // which never uses a plugin's
		{22907, nil, both, "can use the mesh"},
		{22809, nil, "", "can use the mesh"},
	} {
		m := &mesh{offer: gpudirect.Offer{DMABuf: true}, gpu: cuda.Attributes{GPUDirectRDMAWithVMM: true}}
		getenv := func(name string) string { return tt.env[name] }
		if line := m.bypass(Caller{Version: tt.version}, getenv); !strings.HasSuffix(line, tt.want) || tt.want == "" && line != "" {
			t.Errorf("%d with %v: %q, want an end of %q", tt.version, tt.env, line, tt.want)
		}
		if line := describeRMA(getenv); !strings.HasSuffix(line, tt.says) {
			t.Errorf("%v: %q, want an end of %q", tt.env, line, tt.says)
		}
	}
}
