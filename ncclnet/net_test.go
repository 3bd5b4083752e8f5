package ncclnet

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/transport"
	"ncclmesh/transport/fault"
)

var loopback = []netip.Addr{netip.MustParseAddr("127.0.0.1")}

func TestResults(t *testing.T) {
	tests := []struct {
		err  error
		want Result
	}{
		{nil, ncclSuccess},
		{fmt.Errorf("isend: %w", errArgument), ncclInvalidArgument},
		{fmt.Errorf("NCCL_IB_TC: %w", errUsage), ncclInvalidUsage},
		{fmt.Errorf("conn 3: %w", fault.ErrUsage), ncclInvalidUsage},
		{fmt.Errorf("conn 3: %w", fault.ErrPeer), ncclRemoteError},
		{fmt.Errorf("%w: conn 3", fault.ErrPeerGone), ncclRemoteError},
		{fmt.Errorf("%w: conn 3", fault.ErrPeerClosed), ncclRemoteError},
		{fmt.Errorf("%w: conn 3", fault.ErrPeerRefused), ncclRemoteError},
		{fmt.Errorf("%w: conn 3", fault.ErrUnreachable), ncclRemoteError},
		{fmt.Errorf("%w: conn 3", fault.ErrLane), ncclRemoteError},
		{fmt.Errorf("%w: conn 3", fault.ErrProtocol), ncclRemoteError},
		{fmt.Errorf("socket: %w", syscall.EMFILE), ncclSystemError},
		{errors.Join(errors.New("close"), fault.ErrPeer), ncclRemoteError},
		{fmt.Errorf("slot: %w", fault.ErrInternal), ncclInternalError},
		{fault.ErrNoPorts, ncclSystemError},
		{errors.New("ibv_create_qp: cannot allocate memory"), ncclSystemError},
	}
	for _, tt := range tests {
		if got := resultOf(tt.err); got != tt.want {
			t.Errorf("resultOf(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}

func TestCallsBeforeInit(t *testing.T) {
	n := newTestNet(t)
	wire := [HandleSize]byte{}
	if c, r := n.Devices(); c != 0 || r != ncclInvalidUsage {
		t.Errorf("devices: %d, %v", c, r)
	}
	if _, r := n.Properties(0); r != ncclInvalidUsage {
		t.Errorf("getProperties: %v", r)
	}
	if _, _, r := n.Listen(0, 0); r != ncclInvalidUsage {
		t.Errorf("listen: %v", r)
	}
	if _, r := n.Connect(0, 0, &wire); r != ncclInvalidUsage {
		t.Errorf("connect: %v", r)
	}
	if r := n.Finalize(0); r != ncclSuccess {
		t.Errorf("finalize(NULL): %v", r)
	}
}

func TestInitFailsAndIsTriedAgain(t *testing.T) {
	n := newTestNet(t)
	n.f.refuse["open"] = fmt.Errorf("%w: looked at nothing", fault.ErrNoPorts)
	if h, r := n.Init(n.logger(), Caller{}, -1); h != 0 || r != ncclSystemError {
		t.Fatalf("init: %v, %v", h, r)
	}
	if log := n.logged(); !strings.Contains(log, "2 NET/Mesh : init: no usable port: looked at nothing (ncclSystemError)") {
		t.Errorf("log: %s", log)
	}
	if got := n.files[len(n.files)-1]; got != "net.go" {
		t.Errorf("logged as of %s, not of the call", got)
	}
	n.ok("finalize(NULL)", n.Finalize(0))
	if r := n.InitShared(n.logger(), Caller{}); r != ncclSystemError {
		t.Errorf("shared init: %v", r)
	}
	delete(n.f.refuse, "open")
	n.ok("init", n.InitShared(n.logger(), Caller{Interface: 8}))
	if v := n.f.usedBy.Load(); v != 8 {
		t.Errorf("the network is told of version %d", v)
	}
}

func TestBadSettingFailsInit(t *testing.T) {
	n := newTestNet(t)
	n.env["NCCL_IB_TIMEOUT"] = "soon"
	if _, r := n.Init(n.logger(), Caller{}, -1); r != ncclInvalidUsage {
		t.Errorf("init: %v, want ncclInvalidUsage", r)
	}
	want := `2 NET/Mesh : init: invalid usage: NCCL_IB_TIMEOUT="soon": want a whole number from 0 to 31; correct it or unset it (ncclInvalidUsage)`
	if diff := cmp.Diff(want, n.logged()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	n.env["NCCL_IB_TIMEOUT"] = "20"
	n.env["NCCL_MESH_GID_INDX"] = "3"
	n.init()
	if got := n.f.options.Timeout; got != 20 {
		t.Errorf("timeout %d, want 20", got)
	}
	want = "2 NET/Mesh : NCCL_MESH_GID_INDX is not a setting of this plugin and has no effect; did you mean NCCL_MESH_GID_INDEX?" +
		fmt.Sprintf("\n3 NET/Mesh : build %s, protocol %d", handshake.Build(), handshake.Version)
	if diff := cmp.Diff(want, n.logged()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestContextsShareOneTransport(t *testing.T) {
	n := newTestNet(t)
	a, b := n.init(), n.init()
	if a == b || a <= 1 || b <= 1 {
		t.Fatalf("contexts %v and %v", a, b)
	}
	first := n.f
	n.connection(a)
	n.ok("finalize", n.Finalize(a))
	if first.closed {
		t.Error("the transport closed with a context open")
	}
	n.ok("second finalize", n.Finalize(a))
	if r := n.Finalize(0x7f0012345678); r != ncclInvalidArgument {
		t.Errorf("finalize of garbage: %v", r)
	}
	n.ok("finalize", n.Finalize(b))
	if !first.closed {
		t.Error("the transport outlived its last context")
	}
	// The same image after dlclose and dlopen.
	n.init()
	if n.f == first || n.f.closed {
		t.Error("init after the last finalize opened no new transport")
	}
}

// While the objects of one context are closed, another context is finalized: the transport stays open until both are
// done.
func TestFinalizeTwoAtOnce(t *testing.T) {
	n := newTestNet(t)
	a, b := n.init(), n.init()
	_, _, r := n.Listen(b, 0)
	n.ok("listen", r)
	f := n.f
	f.closing = func() {
		n.ok("the other finalize", n.Finalize(a))
		if f.closed {
			t.Error("the transport closed while a listener of it was being closed")
		}
	}
	n.ok("finalize", n.Finalize(b))
	if !f.closed {
		t.Error("the transport outlived its last context")
	}
}

// A process that is about to end waits for the sent data of an open transport.
func TestFlushBeforeExit(t *testing.T) {
	n := newTestNet(t)
	n.FlushBeforeExit()
	a, b := n.init(), n.init()
	f := n.f
	n.FlushBeforeExit()
	n.ok("finalize", n.Finalize(a))
	n.FlushBeforeExit()
	n.ok("finalize", n.Finalize(b))
	n.FlushBeforeExit()
	if f.settled != 2 {
		t.Errorf("settled %d times, want 2", f.settled)
	}
}

func TestSharedContextStays(t *testing.T) {
	n := newTestNet(t)
	n.ok("init", n.InitShared(n.logger(), Caller{}))
	first := n.f
	n.ok("init again", n.InitShared(n.logger(), Caller{}))
	if n.f != first {
		t.Error("the second init opened another transport")
	}
	n.ok("finalize", n.Finalize(n.init()))
	if first.closed {
		t.Error("the shared transport closed")
	}
	send, recv := n.connection(0)
	n.ok("closeSend", n.CloseSend(send))
	n.ok("closeRecv", n.CloseRecv(recv))
	if diff := cmp.Diff(map[string]int{}, n.f.open); diff != "" {
		t.Errorf("open (-want +got):\n%s", diff)
	}
}

// The first init of a process opens the transport, which may take long. Another init waits for it, and opens none. In a
// synctest bubble virtual time advances meanwhile.
func TestInitsTogether(t *testing.T) {
	for _, tt := range []struct {
		name string
		init func(n *testNet) Result
	}{
		{"a shared context", func(n *testNet) Result { return n.InitShared(nil, Caller{}) }},
		{"a context each", func(n *testNet) Result { _, r := n.Init(nil, Caller{}, -1); return r }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestNet(t)
				opened, open := 0, n.process.open
				n.process.open = func(o transport.Options) (network, error) {
					opened++
					time.Sleep(time.Second)
					return open(o)
				}
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() {
						if r := tt.init(n); r != ncclSuccess {
							t.Errorf("init: %v", r)
						}
					})
				}
				wg.Wait()
				if opened != 1 {
					t.Errorf("%d transports were opened", opened)
				}
			})
		})
	}
}

func TestFinalizeReapsWhatIsLeft(t *testing.T) {
	n := newTestNet(t)
	a, b := n.init(), n.init()
	send, _ := n.connection(a)
	_, r := n.RegMr(send, 0x1000, 4096, NCCL_PTR_HOST)
	n.ok("regMr", r)
	_, wire, r := n.Listen(a, 0) // never accepted
	n.ok("listen", r)
	n.f.notYet["connect"] = 1 << 30
	_, r = n.Connect(a, 0, &wire) // never connected
	n.ok("connect", r)
	l, _, r := n.Listen(b, 0) // another communicator's
	n.ok("listen", r)

	n.ok("finalize", n.Finalize(a))
	if diff := cmp.Diff(map[string]int{"listener": 1}, n.f.open); diff != "" {
		t.Errorf("open (-want +got):\n%s", diff)
	}
	if _, r := n.Connect(a, 0, &wire); r != ncclInvalidArgument {
		t.Errorf("connect after finalize: %v", r)
	}
	n.ok("closeListen", n.CloseListen(l))
	n.ok("finalize", n.Finalize(b))
}

func TestConnectWaitsAndFails(t *testing.T) {
	n := newTestNet(t)
	ctx := n.init()
	l, wire, r := n.Listen(ctx, 0)
	n.ok("listen", r)
	n.f.notYet["connect"], n.f.notYet["accept"] = 3, 2
	for range 3 {
		c, r := n.Connect(ctx, 0, &wire)
		n.ok("connect", r)
		if c != 0 {
			t.Fatal("connected too early")
		}
	}
	if got := n.f.open["dialing"]; got != 1 {
		t.Errorf("%d diallings for one connect", got)
	}
	if c, r := n.Connect(ctx, 0, &wire); c == 0 || r != ncclSuccess {
		t.Fatalf("connect: %v, %v", c, r)
	}
	if _, r := n.Connect(ctx, 0, &wire); r != ncclInvalidArgument {
		t.Errorf("connect with a used buffer: %v", r)
	}
	for range 2 {
		if c, r := n.Accept(l); c != 0 || r != ncclSuccess {
			t.Fatalf("accept: %v, %v", c, r)
		}
	}
	if c, r := n.Accept(l); c == 0 || r != ncclSuccess {
		t.Fatalf("accept: %v, %v", c, r)
	}

	_, wire, r = n.Listen(ctx, 0)
	n.ok("listen", r)
	n.f.refuse["connect"] = fmt.Errorf("node-b (10.0.0.2): %w", fault.ErrPeer)
	n.logged()
	if c, r := n.Connect(ctx, 0, &wire); c != 0 || r != ncclRemoteError {
		t.Errorf("connect: %v, %v", c, r)
	}
	if diff := cmp.Diff("2 NET/Mesh : connect: node-b (10.0.0.2): remote error (ncclRemoteError)", n.logged()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if got := n.f.open["dialing"]; got != 0 {
		t.Errorf("%d diallings left", got)
	}
}

func TestConnectRefusesForeignHandles(t *testing.T) {
	n := newTestNet(t)
	ctx := n.init()
	_, good, r := n.Listen(ctx, 0)
	n.ok("listen", r)
	zero, noise, key := [HandleSize]byte{}, good, good
	noise[0] ^= 0xff
	handshake.SetConnectorState(&key, 0xdeadbeef)
	for name, wire := range map[string]*[HandleSize]byte{"NULL": nil, "zero": &zero, "noise": &noise, "foreign key": &key} {
		if c, r := n.Connect(ctx, 0, wire); c != 0 || r != ncclInvalidArgument {
			t.Errorf("%s: %v, %v", name, c, r)
		}
	}
	if _, r := n.Connect(ctx, 1, &good); r != ncclInvalidArgument {
		t.Errorf("device 1: %v", r)
	}
	if _, _, r := n.Listen(ctx, -1); r != ncclInvalidArgument {
		t.Errorf("device -1: %v", r)
	}
}

func TestProperties(t *testing.T) {
	n := newTestNet(t)
	n.init()
	if c, r := n.Devices(); c != 1 || r != ncclSuccess {
		t.Fatalf("devices: %d, %v", c, r)
	}
	got, r := n.Properties(0)
	n.ok("getProperties", r)
	want := Properties{
		Name: "mesh0", PCIPath: "/sys/devices/pci0000:00/0000:01:00.0", GUID: 0x1234, PtrSupport: 1,
		Speed: 200000, Port: 1, Latency: 1.5, MaxComms: 65536, MaxRecvs: 8,
		MaxP2pBytes: 1 << 30, MaxCollBytes: 1 << 30, MaxMultiRequestSize: 1, RailID: -1, PlaneID: -1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, r := n.Properties(1); r != ncclInvalidArgument {
		t.Errorf("device 1: %v", r)
	}
}

func TestTrafficClassOfCommunicator(t *testing.T) {
	n := newTestNet(t)
	_, r := n.Init(n.logger(), Caller{}, 5)
	n.ok("init", r)
	if o := n.f.options; o.TrafficClass != 5 || o.ServiceLevel != 5 {
		t.Errorf("class %d, level %d; want the communicator's, 5", o.TrafficClass, o.ServiceLevel)
	}
}

// The settings that are sent to peers are those at the time when the network was opened.
func TestSettingsReachTheNetwork(t *testing.T) {
	n := newTestNet(t)
	n.env["NCCL_MESH_TOPOLOGY"], n.env["NCCL_ALGO"] = "full", "Ring"
	n.init()
	got := map[string]string{}
	for _, s := range n.f.options.Settings {
		got[s.Name] = s.Value
	}
	for name, want := range map[string]string{"NCCL_MESH_TOPOLOGY": "full", "NCCL_ALGO": "ring", "NCCL_MESH_TUNER": "1", "NCCL_PROTO": ""} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is told as %q, %v; want %q", name, value, ok, want)
		}
	}
}

// A panic in a call is logged with its stack, and fails the connection of the call and no other.
func TestPanicked(t *testing.T) {
	n := newTestNet(t)
	ctx := n.init()
	send, recv := n.connection(ctx)
	other, _ := n.connection(ctx)
	tests := []struct {
		call  string
		about Handle
		fails bool
	}{
		{"isend", send, true},
		{"irecv", recv, true},
		{"test", other.request(3, 1), true},
		{"init", 0, false},
		{"listen", ctx, false},
		{"isend", send + 7<<slotShift, false}, // there is no such connection
	}
	failed := 0
	for _, tt := range tests {
		if r := n.Panicked(tt.call, tt.about, "boom", []byte("goroutine 1:\nmain.main()\n")); r != ncclInternalError {
			t.Errorf("%s: %v, want ncclInternalError", tt.call, r)
		}
		if tt.fails {
			failed++
		}
		if got := n.f.open["failed"]; got != failed {
			t.Errorf("%s about %v: %d connections failed, want %d", tt.call, tt.about, got, failed)
		}
		log := n.logged()
		for _, want := range []string{tt.call + ": internal error: panic: boom", "goroutine 1:", "main.main()"} {
			if !strings.Contains(log, want) {
				t.Errorf("log lacks %q:\n%s", want, log)
			}
		}
	}
}

// NCCL closes NULL after a failed connect or accept, and objects that its clean-up has closed already. Nothing is
// logged then, because ncclGetLastError returns the last log line. Every other call for a closed object fails, and has
// no effect on another connection.
func TestCallsAboutWhatIsGone(t *testing.T) {
	type calls struct {
		ctx, listen, send, recv, smr, rmr, sendRequest, recvRequest Handle
	}
	closes := func(n *testNet, c calls) map[string]Result {
		return map[string]Result{
			"deregMr of a sendComm's": n.DeregMr(c.send, c.smr),
			"deregMr of a recvComm's": n.DeregMr(c.recv, c.rmr),
			"closeSend":               n.CloseSend(c.send),
			"closeRecv":               n.CloseRecv(c.recv),
			"closeListen":             n.CloseListen(c.listen),
			"finalize":                n.Finalize(c.ctx),
		}
	}
	uses := func(n *testNet, c calls) map[string]Result {
		got := map[string]Result{}
		_, got["accept"] = n.Accept(c.listen)
		_, got["regMr of a sendComm"] = n.RegMr(c.send, page, page, NCCL_PTR_HOST)
		_, got["regMrDmaBuf of a recvComm"] = n.RegMrDmaBuf(c.recv, page, page, NCCL_PTR_HOST, 0, 3)
		_, got["isend"] = n.Isend(c.send, page, 8, 0, c.smr, 0)
		_, got["irecv"] = n.Irecv(c.recv, []Buffer{{page, 8, 0, c.rmr, 0}})
		_, got["iflush"] = n.Iflush(c.recv, nil)
		_, got["test of a send"] = n.Test(c.sendRequest, nil)
		_, got["test of a receive"] = n.Test(c.recvRequest, nil)
		return got
	}
	all := func(r Result, like map[string]Result) map[string]Result {
		want := map[string]Result{}
		for call := range like {
			want[call] = r
		}
		return want
	}
	for _, tt := range []struct {
		name string
		end  func(n *testNet, c *calls)
	}{
		{"NULL", func(n *testNet, c *calls) { *c = calls{} }},
		{"closed", func(n *testNet, c *calls) {
			for call, r := range closes(n, *c) {
				n.ok(call, r)
			}
		}},
		{"finalized", func(n *testNet, c *calls) { n.ok("finalize", n.Finalize(c.ctx)) }},
		{"closed, and its places taken", func(n *testNet, c *calls) {
			for call, r := range closes(n, *c) {
				n.ok(call, r)
			}
			ctx := n.init()
			for range chunkSlots { // a place is taken again when enough are free
				send, recv := n.connection(ctx)
				n.ok("closeSend", n.CloseSend(send))
				n.ok("closeRecv", n.CloseRecv(recv))
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newTestNet(t)
			other := n.init()
			n.connection(other)
			c := calls{ctx: n.init()}
			var r Result
			c.listen, _, r = n.Listen(c.ctx, 0)
			n.ok("listen", r)
			c.send, c.recv = n.connection(c.ctx)
			c.smr, r = n.RegMr(c.send, page, page, NCCL_PTR_HOST)
			n.ok("regMr", r)
			c.rmr, r = n.RegMr(c.recv, page, page, NCCL_PTR_HOST)
			n.ok("regMr", r)
			c.recvRequest, r = n.Irecv(c.recv, []Buffer{{page, 8, 0, c.rmr, 0}})
			n.ok("irecv", r)
			c.sendRequest, r = n.Isend(c.send, page, 8, 0, c.smr, 0)
			n.ok("isend", r)
			tt.end(n, &c)
			open := maps.Clone(n.f.open)
			n.logged()

			got := uses(n, c)
			if diff := cmp.Diff(all(ncclInvalidArgument, got), got); diff != "" {
				t.Errorf("uses (-want +got):\n%s", diff)
			}
			n.logged()
			got = closes(n, c)
			if diff := cmp.Diff(all(ncclSuccess, got), got); diff != "" {
				t.Errorf("closes (-want +got):\n%s", diff)
			}
			if log := n.logged(); log != "" {
				t.Errorf("the closes logged: %s", log)
			}
			if diff := cmp.Diff(open, n.f.open); diff != "" {
				t.Errorf("open (-before +after):\n%s", diff)
			}
		})
	}
}
