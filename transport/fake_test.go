package transport

// The tests of connections run over tests/fakeverbs: the whole package's tests
// start again as a process on a node of a small fabric.

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
	"ncclmesh/transport/topology"
)

// topologyOfTests has the node that the tests run on, with two ports of different speed
// that reach themselves, and another at the end of their cables.
const topologyOfTests = `
port a rdma0 netdev p0 addr 192.168.1.1/24 cage p0 speed 100G
port a rdma1 netdev p1 addr 192.168.2.1/24 cage p1 speed 50G msg 4096
port b rdma0 netdev p0 addr 192.168.1.2/24
port b rdma1 netdev p1 addr 192.168.2.2/24
link a:rdma0 b:rdma0
link a:rdma1 b:rdma1
mgmt none
`

// noFake is why the tests of connections cannot run.
var noFake string

func TestMain(m *testing.M) {
	if os.Getenv(fabric.Tested) == "" {
		if err := fabric.Again("transport", topologyOfTests, "a"); err != nil {
			noFake = err.Error()
		}
	}
	os.Exit(m.Run())
}

// requireFake skips a test where the fake library cannot be built.
func requireFake(t *testing.T) {
	t.Helper()
	if noFake != "" {
		require.Skip(t, require.Fake, "needs tests/fakeverbs: "+noFake)
	}
}

// fault runs fakefault.
func fault(t *testing.T, args ...string) {
	t.Helper()
	out, err := faultCommand(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("fakefault %v: %v: %s", args, err, out)
	}
}

func faultCommand(args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(os.Getenv(fabric.Tested), "fakefault"), args...)
}

// testLog writes a transport's log into the test's.
type testLog struct {
	t *testing.T
}

func (w testLog) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

var warm sync.Once

func testOptions(t *testing.T) Options {
	return Options{
		Sysfs:   os.Getenv("NCCL_MESH_SYSFS"),
		Timeout: -1, RetryCount: -1, TrafficClass: -1, ServiceLevel: -1,
		TimeScale: 5, // the machines that run tests are busy
		Log:       slog.New(slog.NewTextHandler(testLog{t}, nil)),
	}
}

func newTransport(t *testing.T, change ...func(*Options)) *Transport {
	t.Helper()
	requireFake(t)
	o := testOptions(t)
	for _, f := range change {
		f(&o)
	}
	tr, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return tr
}

// leaks fails the test when it leaves verbs objects, descriptors or goroutines
// behind. Call it before anything else registers a cleanup.
func leaks(t *testing.T) {
	t.Helper()
	requireFake(t)
	fds := func() []string {
		d, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		var open []string
		for _, e := range d {
			if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to != "anon_inode:[pidfd]" { // nor the fake library's hold on a process
				open = append(open, e.Name()+" "+to)
			}
		}
		return open
	}
	warm.Do(func() { // what the library keeps for the process is no leak
		if _, err := ibv.Load(); err != nil {
			t.Fatal(err)
		}
		tr, err := New(testOptions(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	})
	goroutines, files, live := runtime.NumGoroutine(), fds(), ibv.Live()
	t.Cleanup(func() {
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			g, f, l := runtime.NumGoroutine(), fds(), ibv.Live()
			diff := cmp.Diff(live, l)
			if g <= goroutines && len(f) <= len(files) && diff == "" {
				return
			}
			runtime.GC() // pipes that the standard library keeps for splicing go with it
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<16)
				t.Errorf("left behind: %d goroutines (%d before), descriptors %q (%q before), verbs objects (-before +after):\n%s\n%s",
					g, goroutines, f, files, diff, buf[:runtime.Stack(buf, true)])
				return
			}
		}
	})
}

// await calls f until it is true.
func await(t testing.TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !f(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// listen makes a listener, and what its peer is told.
func listen(t testing.TB, tr *Transport) (*Listener, handshake.Handle) {
	t.Helper()
	l, err := tr.Listen()
	if err != nil {
		t.Fatal(err)
	}
	raw := l.Handle()
	h, err := handshake.DecodeHandle(&raw)
	if err != nil {
		t.Fatal(err)
	}
	return l, h
}

// connect sets up a connection between two transports.
func connect(t testing.TB, from, to *Transport) (*SendConn, *RecvConn) {
	t.Helper()
	l, h := listen(t, to)
	d := from.Dial(h)
	var s *SendConn
	var r *RecvConn
	await(t, "the connection", func() bool {
		var err error
		if s == nil {
			if s, err = d.Poll(); err != nil {
				t.Fatal(err)
			}
		}
		if r == nil {
			if r, err = l.Accept(); err != nil {
				t.Fatal(err)
			}
		}
		return s != nil && r != nil
	})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return s, r
}

// memory is user memory outside the Go heap.
func memory(t *testing.T, n int) (*ibv.Memory, []byte) {
	t.Helper()
	m, err := ibv.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Free(); err != nil {
			t.Error(err)
		}
	})
	return m, m.Bytes()
}

func register(t *testing.T, c interface {
	RegMR(addr, length uintptr) (*Region, error)
}, m *ibv.Memory) *Region {
	t.Helper()
	r, err := c.RegMR(m.Addr(), uintptr(m.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// done tests a request until it is.
func done(t *testing.T, what string, r *Request) {
	t.Helper()
	await(t, what, func() bool {
		ok, err := r.Test()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return ok
	})
}

func isend(t *testing.T, s *SendConn, m *ibv.Memory, off, size int, tag int32, g *Region) *Request {
	t.Helper()
	var q *Request
	await(t, "a grant", func() bool {
		var err error
		if q, err = s.Isend(m.Addr()+uintptr(off), size, tag, g); err != nil {
			t.Fatal(err)
		}
		return q != nil
	})
	return q
}

func irecv(t *testing.T, r *RecvConn, bufs ...Buffer) *Request {
	t.Helper()
	var q *Request
	await(t, "room for a receive", func() bool {
		var err error
		if q, err = r.Irecv(bufs); err != nil {
			t.Fatal(err)
		}
		return q != nil
	})
	return q
}

func fill(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + seed)
	}
}

// Every size arrives whole and nothing beyond it is touched; both lanes carry
// the large ones, one of them in writes of 4096 bytes.
func TestSizes(t *testing.T) {
	leaks(t)
	a, b := newTransport(t), newTransport(t)
	s, r := connect(t, a, b)
	const room = 1 << 20
	sm, sb := memory(t, room)
	rm, rb := memory(t, room+256)
	sg, rg := register(t, s, sm), register(t, r, rm)
	for i, size := range []int{0, 1, 7, 8, 127, 128, 129, 4095, 4096, 4097, 65535, 65536, 65537, 100001, 1<<19 + 3, room} {
		fill(sb, i)
		clear(rb)
		rq := irecv(t, r, Buffer{rm.Addr(), size + 100, 5, rg})
		sq := isend(t, s, sm, 0, size, 5, sg)
		done(t, fmt.Sprintf("send of %d", size), sq)
		done(t, fmt.Sprintf("receive of %d", size), rq)
		if rq.Size(0) != size || sq.Size(0) != size {
			t.Errorf("size %d: sent %d, received %d", size, sq.Size(0), rq.Size(0))
		}
		if !bytes.Equal(sb[:size], rb[:size]) {
			t.Errorf("size %d: the bytes differ", size)
		}
		if !bytes.Equal(rb[size:], make([]byte, len(rb)-size)) {
			t.Errorf("size %d: bytes beyond it were written", size)
		}
	}
	for _, l := range s.lanes {
		if l.bytes == 0 {
			t.Errorf("%v carried nothing", l)
		}
	}
	closeBoth(t, s, r)
}

func closeBoth(t *testing.T, s *SendConn, r *RecvConn) {
	t.Helper()
	if err := errors.Join(s.Close(), r.Close()); err != nil {
		t.Error(err)
	}
}

// A group's messages go where their tags say, in whatever order they are sent.
func TestGroup(t *testing.T) {
	leaks(t)
	a, b := newTransport(t), newTransport(t)
	s, r := connect(t, a, b)
	const each = 8192
	sm, sb := memory(t, maxSubs*each)
	rm, rb := memory(t, maxSubs*each)
	sg, rg := register(t, s, sm), register(t, r, rm)
	for n := 1; n <= maxSubs; n++ {
		fill(sb, n)
		clear(rb)
		var bufs []Buffer
		for i := range n {
			bufs = append(bufs, Buffer{rm.Addr() + uintptr(i*each), each, int32(100 + i), rg})
		}
		rq := irecv(t, r, bufs...)
		if q, err := s.Isend(sm.Addr(), 1, 99, sg); q != nil || err != nil {
			t.Fatalf("a send with a tag nobody waits for: %v, %v", q, err)
		}
		var sent []*Request
		for k := range n {
			i := (k*5 + 3) % n // every number once, as 5 and n have no common factor but for n = 5
			if n == 5 {
				i = n - 1 - k
			}
			sent = append(sent, isend(t, s, sm, i*each, each-i, int32(100+i), sg))
		}
		for _, q := range sent {
			done(t, "send", q)
		}
		done(t, "group", rq)
		for i := range n {
			if rq.Size(i) != each-i {
				t.Errorf("group of %d: buffer %d has %d bytes, want %d", n, i, rq.Size(i), each-i)
			}
			if !bytes.Equal(rb[i*each:i*each+each-i], sb[i*each:i*each+each-i]) {
				t.Errorf("group of %d: buffer %d differs", n, i)
			}
		}
	}
	closeBoth(t, s, r)
}

// 256 sub-receives may be outstanding, then Irecv says "later"; likewise sends.
func TestWindow(t *testing.T) {
	leaks(t)
	a, b := newTransport(t), newTransport(t)
	s, r := connect(t, a, b)
	sm, sb := memory(t, 4096)
	rm, rb := memory(t, 2*window*16)
	sg, rg := register(t, s, sm), register(t, r, rm)
	fill(sb, 1)
	for round := range 3 {
		var recvs, sends []*Request
		for i := range 2 * window {
			q, err := r.Irecv([]Buffer{{rm.Addr() + uintptr(i*16), 16, 1, rg}})
			if err != nil {
				t.Fatal(err)
			}
			if q == nil {
				break
			}
			recvs = append(recvs, q)
		}
		if len(recvs) != window {
			t.Fatalf("round %d: %d receives outstanding, want %d", round, len(recvs), window)
		}
		for range window {
			sends = append(sends, isend(t, s, sm, 0, 16, 1, sg))
		}
		if q, err := s.Isend(sm.Addr(), 16, 1, sg); q != nil || err != nil {
			t.Fatalf("a send without a grant: %v, %v", q, err)
		}
		for i := range window { // any order
			done(t, "send", sends[window-1-i])
			done(t, "receive", recvs[(i*3)%window])
		}
		for i := range window {
			if !bytes.Equal(rb[i*16:i*16+16], sb[:16]) {
				t.Fatalf("round %d: message %d differs", round, i)
			}
		}
	}
	closeBoth(t, s, r)
}

// The data path allocates nothing.
func TestNoAllocations(t *testing.T) {
	leaks(t)
	a, b := newTransport(t), newTransport(t)
	s, r := connect(t, a, b)
	sm, _ := memory(t, 1<<20)
	rm, _ := memory(t, 1<<20)
	sg, rg := register(t, s, sm), register(t, r, rm)
	for _, size := range []int{8, 1 << 18} {
		bufs := []Buffer{{rm.Addr(), size, 1, rg}}
		n := testing.AllocsPerRun(200, func() {
			var rq, sq *Request
			for rq == nil {
				rq, _ = r.Irecv(bufs)
			}
			for sq == nil {
				sq, _ = s.Isend(sm.Addr(), size, 1, sg)
			}
			for sent, got := false, false; !sent || !got; {
				if !sent {
					sent, _ = sq.Test()
				}
				if !got {
					got, _ = rq.Test()
				}
			}
		})
		if n != 0 {
			t.Errorf("a message of %d bytes allocates %v times", size, n)
		}
	}
	closeBoth(t, s, r)
}

// A region may go while another's requests are outstanding.
func TestDeregOther(t *testing.T) {
	leaks(t)
	a, b := newTransport(t), newTransport(t)
	s, r := connect(t, a, b)
	sm, _ := memory(t, 4096)
	rm, _ := memory(t, 8192)
	sg := register(t, s, sm)
	g1, err := r.RegMR(rm.Addr(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	g2, err := r.RegMR(rm.Addr()+4096, 4096)
	if err != nil {
		t.Fatal(err)
	}
	rq := irecv(t, r, Buffer{rm.Addr(), 4096, 1, g1})
	if err := r.DeregMR(g2); err != nil {
		t.Fatal(err)
	}
	done(t, "send", isend(t, s, sm, 0, 4096, 1, sg))
	done(t, "receive", rq)
	if err := r.DeregMR(g2); !errors.Is(err, ErrUsage) {
		t.Errorf("second DeregMR: %v, want ErrUsage", err)
	}
	closeBoth(t, s, r)
}

// What is wrong in a call is said, and does not end the connection.
func TestMisuse(t *testing.T) {
	leaks(t)
	a, b := newTransport(t), newTransport(t)
	s, r := connect(t, a, b)
	m, _ := memory(t, 4096)
	sg, rg := register(t, s, m), register(t, r, m)
	rq := irecv(t, r, Buffer{m.Addr(), 64, 1, rg})
	tests := []struct {
		name string
		call func() error
	}{
		{"send beyond the region", func() error { _, err := s.Isend(m.Addr()+4000, 97, 1, sg); return err }},
		{"send before the region", func() error { _, err := s.Isend(m.Addr()-1, 1, 1, sg); return err }},
		{"send without a region", func() error { _, err := s.Isend(m.Addr(), 1, 1, nil); return err }},
		{"negative size", func() error { _, err := s.Isend(m.Addr(), -1, 1, sg); return err }},
		{"receive of nothing", func() error { _, err := r.Irecv(nil); return err }},
		{"receive of nine", func() error { _, err := r.Irecv(make([]Buffer, 9)); return err }},
		{"receive beyond the region", func() error { _, err := r.Irecv([]Buffer{{m.Addr(), 4097, 1, rg}}); return err }},
		{"foreign region", func() error { return s.DeregMR(rg) }},
	}
	for _, tt := range tests {
		if err := tt.call(); !errors.Is(err, ErrUsage) {
			t.Errorf("%s: %v, want ErrUsage", tt.name, err)
		}
	}
	done(t, "send", isend(t, s, m, 128, 64, 1, sg))
	done(t, "receive", rq)
	if _, err := rq.Test(); !errors.Is(err, ErrUsage) {
		t.Errorf("test of a finished request: %v, want ErrUsage", err)
	}
	closeBoth(t, s, r)
}

// An error completion ends its own request, whoever polled it; the message that
// was delivered before is still done.
func TestBrokenLane(t *testing.T) {
	leaks(t)
	a, b := newTransport(t), newTransport(t)
	s, r := connect(t, a, b)
	m, _ := memory(t, 1<<16)
	sg, rg := register(t, s, m), register(t, r, m)
	q1 := irecv(t, r, Buffer{m.Addr(), 64, 1, rg})
	q2 := irecv(t, r, Buffer{m.Addr() + 64, 64, 1, rg})
	s1 := isend(t, s, m, 1024, 64, 1, sg)
	await(t, "the first message", func() bool { ok, err := q1.Test(); return ok || err != nil })
	for _, l := range s.lanes {
		if err := l.carrier.(*queuePair).qp.Modify(&ibv.QPAttr{QPState: ibv.IBV_QPS_ERR}, ibv.IBV_QP_STATE); err != nil {
			t.Fatal(err)
		}
	}
	var s2 *Request
	var err error
	await(t, "the error", func() bool {
		if s2 == nil {
			s2, err = s.Isend(m.Addr()+2048, 64, 1, sg)
		} else {
			_, err = s2.Test()
		}
		return err != nil
	})
	if !errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), "rdma0:1") {
		t.Errorf("error %v, want ErrPeer naming the port", err)
	}
	done(t, "the send before", s1)
	await(t, "the receiver's error", func() bool { _, err = q2.Test(); return err != nil })
	if !errors.Is(err, ErrPeer) {
		t.Errorf("the receiver sees %v, want ErrPeer", err)
	}
	closeBoth(t, s, r)
}

// Set-ups given up at any point leave nothing behind.
func TestAbandon(t *testing.T) {
	leaks(t)
	a, b := newTransport(t), newTransport(t)
	for i := range 20 {
		l, h := listen(t, b)
		d := a.Dial(h)
		time.Sleep(time.Duration(i) * 200 * time.Microsecond)
		var err error
		if i%2 == 0 {
			err = errors.Join(d.Close(), l.Close())
		} else {
			err = errors.Join(l.Close(), d.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}
	s, r := connect(t, a, b) // all is well
	closeBoth(t, s, r)
}

// A closed peer is an error of the next operation, not before.
func TestPeerCloses(t *testing.T) {
	leaks(t)
	a, b := newTransport(t), newTransport(t)
	s, r := connect(t, a, b)
	m, _ := memory(t, 4096)
	sg, rg := register(t, s, m), register(t, r, m)
	rq := irecv(t, r, Buffer{m.Addr(), 64, 1, rg})
	done(t, "send", isend(t, s, m, 128, 64, 1, sg))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	time.Sleep(20 * time.Millisecond)
	done(t, "a receive that was complete", rq)
	await(t, "the error", func() bool {
		_, err := r.Irecv([]Buffer{{m.Addr(), 64, 1, rg}})
		if err != nil && !errors.Is(err, ErrPeer) {
			t.Fatalf("%v, want ErrPeer", err)
		}
		return err != nil
	})
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// A process may connect to itself.
func TestSelf(t *testing.T) {
	leaks(t)
	a := newTransport(t)
	s, r := connect(t, a, a)
	m, b := memory(t, 1<<20)
	sg, rg := register(t, s, m), register(t, r, m)
	fill(b[:1<<19], 1)
	rq := irecv(t, r, Buffer{m.Addr() + 1<<19, 1 << 19, 1, rg})
	done(t, "send", isend(t, s, m, 0, 1<<19, 1, sg))
	done(t, "receive", rq)
	if !bytes.Equal(b[:1<<19], b[1<<19:]) {
		t.Error("the bytes differ")
	}
	closeBoth(t, s, r)
}

func TestNoPorts(t *testing.T) {
	requireFake(t)
	hca, err := topology.ParseHCA("mlx9")
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(Options{Sysfs: os.Getenv("NCCL_MESH_SYSFS"), HCA: hca, Transport: TransportRDMA})
	if !errors.Is(err, ErrNoPorts) || !strings.Contains(err.Error(), "NCCL_IB_HCA") {
		t.Errorf("error %v, want ErrNoPorts naming NCCL_IB_HCA", err)
	}
	_, err = New(Options{Sysfs: t.TempDir(), Transport: TransportRDMA})
	if !errors.Is(err, ErrNoPorts) {
		t.Errorf("error %v, want ErrNoPorts", err)
	}
}

// A refused registration is this node's own failure, says what and why, and ends
// nothing.
func TestRegistrationRefused(t *testing.T) {
	leaks(t)
	a, b := newTransport(t), newTransport(t)
	s, r := connect(t, a, b)
	m, _ := memory(t, 1<<20)
	fault(t, "verb", "name=reg_mr", "errno=ENOMEM", "times=1")
	_, err := s.RegMR(m.Addr(), uintptr(m.Len()))
	if !errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), "memlock") || !strings.Contains(err.Error(), "1048576") {
		t.Errorf("error %v, want ENOMEM with size and limit", err)
	}
	sg, rg := register(t, s, m), register(t, r, m)
	rq := irecv(t, r, Buffer{m.Addr(), 64, 1, rg})
	done(t, "send", isend(t, s, m, 128, 64, 1, sg))
	done(t, "receive", rq)
	closeBoth(t, s, r)
}

// The receiver's Bye may overtake the acknowledgement of the last send: that send
// is done all the same, and the next one is refused.
func TestByeOvertakes(t *testing.T) {
	leaks(t)
	a, b := newTransport(t), newTransport(t)
	s, r := connect(t, a, b)
	m, _ := memory(t, 4096)
	sg, rg := register(t, s, m), register(t, r, m)
	rq := irecv(t, r, Buffer{m.Addr(), 64, 1, rg})
	fault(t, "slow", "time=200ms")
	t.Cleanup(func() { fault(t, "clear") })
	sq := isend(t, s, m, 128, 64, 1, sg)
	s.deliver(&handshake.Bye{Conn: s.id})
	if ok, err := sq.Test(); ok || err != nil {
		t.Fatalf("right after the Bye: done %v, %v", ok, err)
	}
	done(t, "the send", sq)
	done(t, "the receive", rq)
	if _, err := s.Isend(m.Addr(), 64, 1, sg); !errors.Is(err, ErrPeer) {
		t.Errorf("a send after the Bye: %v, want ErrPeer", err)
	}
	closeBoth(t, s, r)
}
