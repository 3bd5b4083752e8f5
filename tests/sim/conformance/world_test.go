package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/guard"
	"ncclmesh/ibv"
	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
	"ncclmesh/tests/sim/adapter"
	"ncclmesh/tests/sim/bus"
	"ncclmesh/transport/topology"
)

// cabling is the model's world for the C library.
const cabling = `
port a rdma0 netdev p0 addr 192.168.1.1/24 mtu 1500 ece 15b3:10000007 dma 0000:02:00.0
port a rdma1 netdev p1 addr 192.168.1.2/24 mtu 1500 ece 15b3:1000000d
link a:rdma0 a:rdma1
mgmt none
resolve 50ms
`

var missing string // why the C library cannot be tried

func TestMain(m *testing.M) {
	if os.Getenv(fabric.Tested) == "" {
		if err := fabric.Again("conformance", cabling, "a"); err != nil {
			missing = err.Error()
		}
	}
	os.Exit(m.Run())
}

// A world is what a row runs on.
type world struct {
	*testing.T
	lib    *ibv.Library
	gid    func(device string) (topology.Address, error) // the RoCE v2 GID of the device that is an IPv4 address
	pause  func()                                        // lets others do something
	faults faults
	ends   []*end
}

// faults are what can be done to the cable and the port of the first device, each until mend, and what memory a GPU has.
type faults interface {
	unplug()
	stall()         // packets of the first port vanish, in both directions
	loseAcks(n int) // the next n requests of the first port land, and their acknowledgements are lost
	mend()          // ends the faults, and plugs the cable in
	breakQP(num uint32)
	newGPU(n int) (gpuMemory, error)
}

// hopeless is when a row that waits fails. It is no measure: rows wait for what is to happen.
const hopeless = 5 * time.Minute

// await waits until something is so.
func (w *world) await(what string, so func() bool) {
	w.Helper()
	for begun, looks := time.Now(), 1; !so(); looks++ {
		if looks%1024 == 0 && time.Since(begun) > hopeless {
			w.Fatalf("%s has not come", what)
		}
		w.pause()
	}
}

// must ends the row on an error.
func (w *world) must(errs ...error) {
	w.Helper()
	if err := errors.Join(errs...); err != nil {
		w.Fatal(err)
	}
}

func TestModel(t *testing.T) {
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			bus.Run(t, 1, func(t *testing.T, b *bus.Bus) {
				f := adapter.New(b)
				var ports []*adapter.Port
				gids := map[string]topology.Address{}
				for i, name := range []string{"rdma0", "rdma1"} {
					gids[name] = topology.Address{Index: 1, Addr: netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff, 12: 192, 13: 168, 14: 1, 15: byte(i + 1)})}
					gid := ibv.GID(gids[name].Addr.As16())
					d := f.AddDevice("a", name, adapter.Usual)
					if i == 0 {
						d.KnowDataDirect(dataDirect)
					}
					d.KnowECE(eceVendor, []uint32{eceFirst, eceSecond}[i])
					ports = append(ports, d.AddPort(adapter.PortConfig{MTU: ibv.IBV_MTU_1024,
						GIDs: []adapter.GID{{GID: gid, Type: ibv.IBV_GID_TYPE_ROCE_V1}, {GID: gid, Type: ibv.IBV_GID_TYPE_ROCE_V2}}}))
				}
				m := &model{fabric: f, ports: ports, link: f.Connect(adapter.LinkConfig{Rate: 12_500_000_000, Latency: time.Microsecond, Jitter: 100}, ports...)}
				p := f.Process("a", "test")
				pause := b.Source("test")
				try(&world{T: t, lib: ibv.Use(p), gid: func(device string) (topology.Address, error) { return gids[device], nil }, pause: func() { pause.Sleep(time.Microsecond) }, faults: m}, r)
				if left := p.Objects(); len(left) > 0 {
					t.Errorf("left at the adapters: %v", left)
				}
			})
		})
	}
}

func TestFake(t *testing.T) {
	if missing != "" {
		require.Skip(t, require.Fake, "needs tests/fakeverbs: "+missing)
	}
	lib, err := ibv.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.timed {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			f := fake{t}
			defer f.mend()
			try(&world{T: t, lib: lib, gid: discovered, pause: runtime.Gosched, faults: f}, r)
		})
	}
}

// discovered finds the RoCE v2 GID of a device that is an IPv4 address, as the plugin does.
func discovered(device string) (topology.Address, error) {
	node, err := topology.Discover(topology.Source{})
	if err != nil {
		return topology.Address{}, err
	}
	for _, p := range node.Ports {
		if gids := p.RankGIDs(topology.AnyGID); p.Device == device && len(gids) > 0 && gids[0].Addr.Unmap().Is4() {
			return gids[0], nil
		}
	}
	return topology.Address{}, fmt.Errorf("%s has no GID of RoCE v2 over IPv4", device)
}

func try(w *world, r row) {
	before := ibv.Live()
	defer func() {
		for _, e := range w.ends { // a row that failed has left them
			e.stop()
		}
	}()
	r.run(w)
	if diff := cmp.Diff(before, ibv.Live()); diff != "" && !w.Failed() {
		w.Errorf("left open (-before +after):\n%s", diff)
	}
}

// model has the faults of the model.
type model struct {
	fabric *adapter.Fabric
	ports  []*adapter.Port
	link   *adapter.Link
}

func (m *model) unplug() { m.link.Cut(true) }

func (m *model) stall() {
	for _, p := range m.ports {
		p.Lose(adapter.Loss{Data: 1, Acks: 1})
	}
}

func (m *model) loseAcks(n int) { m.ports[1].LoseAcks(n) }

func (m *model) mend() {
	for _, p := range m.ports {
		p.Lose(adapter.Loss{})
	}
	m.link.Cut(false)
}

func (m *model) breakQP(num uint32) { m.fabric.Break(num) }

// fake has the faults of the C library.
type fake struct{ t *testing.T }

func (f fake) inject(args ...string) {
	f.t.Helper()
	if out, err := exec.Command(filepath.Join(os.Getenv(fabric.Tested), "fakefault"), args...).CombinedOutput(); err != nil {
		f.t.Fatalf("fakefault %v: %v: %s", args, err, out)
	}
}

func (f fake) unplug() { f.inject("unplug", "a:rdma0") }
func (f fake) stall()  { f.inject("stall", "port=a:rdma0") }
func (f fake) mend()   { f.inject("clear"); f.inject("plug", "a:rdma0") }

func (f fake) loseAcks(n int) { f.inject("ack", "port=a:rdma0", fmt.Sprint("times=", n)) }

func (f fake) breakQP(num uint32) { f.inject("qp-error", fmt.Sprintf("%#x", num)) }

// A wish says how an end is to be; zeros stand for what most rows want.
type wish struct {
	sendWR, recvWR, sge, inline, cqe uint32
	sigAll                           bool
	timeout, retry, rnr              uint8  // of RTS; rnr 7 is for ever
	reads, readsIn                   int    // -1 is none
	access                           uint32 // of the region
	qpAccess                         uint32 // of the queue pair; as of the region
	state                            uint32 // so far; IBV_QPS_RTS
	fresh                            bool   // not even that: it stays in RESET
}

const all = ibv.IBV_ACCESS_LOCAL_WRITE | ibv.IBV_ACCESS_REMOTE_WRITE | ibv.IBV_ACCESS_REMOTE_READ

// size of an end's memory.
const size = 1 << 20

// An end is a queue pair with what it needs.
type end struct {
	w    *world
	wish wish
	ctx  *ibv.Context
	pd   *ibv.PD
	ch   *ibv.CompChannel
	cq   *ibv.CQ
	qp   *ibv.QP
	mem  *ibv.Memory
	mr   *ibv.MR
	gid  topology.Address
	peer *end

	buf  []byte // registered
	wr   []ibv.SendWR
	recv []ibv.RecvWR
	sge  []ibv.SGE
	wc   []ibv.WC

	events chan ibv.Event
	stop   func()
}

func newEnd(w *world, device string, wish wish) *end {
	w.Helper()
	devices, err := w.lib.Devices()
	w.must(err)
	i := slices.IndexFunc(devices, func(d *ibv.Device) bool { return d.Name() == device })
	if i < 0 {
		w.Fatalf("no device %s among %v", device, devices)
	}
	e := &end{w: w, wish: wish, events: make(chan ibv.Event, 64)}
	def := func(v *uint32, d uint32) {
		if *v == 0 {
			*v = d
		}
	}
	def(&e.wish.sendWR, 16)
	def(&e.wish.recvWR, 16)
	def(&e.wish.sge, 4)
	def(&e.wish.cqe, 64)
	def(&e.wish.access, all)
	def(&e.wish.state, ibv.IBV_QPS_RTS)
	def(&e.wish.qpAccess, e.wish.access)
	if e.ctx, err = devices[i].Open(); err != nil {
		w.Fatal(err)
	}
	e.stop, err = e.ctx.Events(func(ev ibv.Event) { e.events <- ev }, func(*guard.Panic) {})
	w.must(err)
	w.ends = append(w.ends, e)
	e.gid, err = w.gid(device)
	w.must(err)
	e.pd, err = e.ctx.AllocPD()
	w.must(err)
	e.ch, err = e.ctx.CreateCompChannel()
	w.must(err, e.ch.SetNonblock())
	e.cq, err = e.ctx.CreateCQ(int(e.wish.cqe), e.ch)
	w.must(err)
	e.mem, err = ibv.Alloc(2*size + 1<<16)
	w.must(err)
	e.buf = ibv.Carve[byte](e.mem, size)
	e.wr, e.recv = ibv.Carve[ibv.SendWR](e.mem, 64), ibv.Carve[ibv.RecvWR](e.mem, 64)
	e.sge, e.wc = ibv.Carve[ibv.SGE](e.mem, 64), ibv.Carve[ibv.WC](e.mem, 64)
	e.mr, err = e.pd.RegMR(ibv.AddrOf(&e.buf[0]), size, e.wish.access|ibv.IBV_ACCESS_LOCAL_WRITE)
	w.must(err)
	e.makeQP()
	return e
}

func (e *end) makeQP() {
	var err error
	e.qp, err = e.pd.CreateQP(ibv.QPInit{SendCQ: e.cq, RecvCQ: e.cq, MaxSendWR: e.wish.sendWR, MaxRecvWR: e.wish.recvWR,
		MaxSendSGE: e.wish.sge, MaxRecvSGE: e.wish.sge, MaxInline: e.wish.inline, Type: ibv.IBV_QPT_RC, SigAll: e.wish.sigAll})
	e.w.must(err)
}

// ends are two that are connected as far as their wishes go.
func ends(w *world, wishes ...wish) (a, b *end) {
	w.Helper()
	var wish wish
	if len(wishes) > 0 {
		wish = wishes[0]
	}
	a = newEnd(w, "rdma0", wish)
	if len(wishes) > 1 {
		wish = wishes[1]
	}
	b = newEnd(w, "rdma1", wish)
	a.peer, b.peer = b, a
	for _, e := range []*end{a, b} {
		for _, to := range []uint32{ibv.IBV_QPS_INIT, ibv.IBV_QPS_RTR, ibv.IBV_QPS_RTS} {
			if to <= e.wish.state && !e.wish.fresh {
				w.must(e.to(to))
			}
		}
	}
	return a, b
}

const (
	maskInit = ibv.IBV_QP_STATE | ibv.IBV_QP_PKEY_INDEX | ibv.IBV_QP_PORT | ibv.IBV_QP_ACCESS_FLAGS
	maskRTR  = ibv.IBV_QP_STATE | ibv.IBV_QP_AV | ibv.IBV_QP_PATH_MTU | ibv.IBV_QP_DEST_QPN | ibv.IBV_QP_RQ_PSN |
		ibv.IBV_QP_MAX_DEST_RD_ATOMIC | ibv.IBV_QP_MIN_RNR_TIMER
	maskRTS = ibv.IBV_QP_STATE | ibv.IBV_QP_TIMEOUT | ibv.IBV_QP_RETRY_CNT | ibv.IBV_QP_RNR_RETRY | ibv.IBV_QP_SQ_PSN |
		ibv.IBV_QP_MAX_QP_RD_ATOMIC
)

// psn is where the packets of an end begin: close to where the numbers wrap.
func (e *end) psn() uint32 { return 0xfffff0 + e.qp.Num()&7 }

// attributes are those of a change of state.
func (e *end) attributes(to uint32) (*ibv.QPAttr, uint32) {
	reads := func(n int) uint8 {
		if n < 0 {
			return 0
		}
		return uint8(max(n, 1))
	}
	a := &ibv.QPAttr{QPState: to}
	switch to {
	case ibv.IBV_QPS_INIT:
		a.PortNum, a.QPAccessFlags = 1, e.wish.qpAccess
		return a, maskInit
	case ibv.IBV_QPS_RTR:
		a.AHAttr = ibv.AHAttr{IsGlobal: 1, PortNum: 1, GRH: ibv.GlobalRoute{DGID: e.peer.gid.Addr.As16(), SGIDIndex: uint8(e.gid.Index), HopLimit: 64}}
		a.PathMTU, a.DestQPNum, a.RQPSN = ibv.IBV_MTU_1024, e.peer.qp.Num(), e.peer.psn()
		a.MaxDestRdAtomic, a.MinRnrTimer = reads(e.wish.readsIn), 1
		return a, maskRTR
	case ibv.IBV_QPS_RTS:
		a.SQPSN, a.MaxRdAtomic = e.psn(), reads(e.wish.reads)
		a.Timeout, a.RetryCnt, a.RnrRetry = e.wish.timeout, e.wish.retry, e.wish.rnr
		if a.Timeout == 0 {
			a.Timeout, a.RetryCnt = 18, 7
		}
		return a, maskRTS
	}
	return a, ibv.IBV_QP_STATE
}

func (e *end) to(state uint32) error { return e.qp.Modify(e.attributes(state)) }

// close gives everything back.
func (e *end) close() {
	e.w.Helper()
	if e.qp != nil {
		e.w.must(e.qp.Close())
	}
	e.stop()
	e.w.must(e.cq.Close(), e.ch.Close(), e.mr.Close(), e.pd.Close(), e.ctx.Close(), e.mem.Free())
}

// send makes a request of an end, in a place of its own for each id.
func (e *end) send(id int, opcode uint32, at, n, to int, flags uint32) *ibv.SendWR {
	e.sge[id] = ibv.SGE{Addr: uint64(ibv.AddrOf(&e.buf[0])) + uint64(at), Length: uint32(n), LKey: e.mr.LKey()}
	e.wr[id] = ibv.SendWR{WRID: uint64(id), Opcode: opcode, SendFlags: flags, SGList: ibv.AddrOf(&e.sge[id]), NumSGE: 1, Imm: 0x04030201,
		RemoteAddr: uint64(ibv.AddrOf(&e.peer.buf[0])) + uint64(to), RKey: e.peer.mr.RKey()}
	return &e.wr[id]
}

// post posts a signalled request.
func (e *end) post(id int, opcode uint32, at, n, to int) {
	e.w.Helper()
	e.posted(e.send(id, opcode, at, n, to, ibv.IBV_SEND_SIGNALED))
}

func (e *end) posted(wr *ibv.SendWR) {
	e.w.Helper()
	_, err := e.qp.PostSend(wr)
	e.w.must(err)
}

// receive makes a receive of an end.
func (e *end) receive(id, at, n int) *ibv.RecvWR {
	e.sge[id] = ibv.SGE{Addr: uint64(ibv.AddrOf(&e.buf[0])) + uint64(at), Length: uint32(n), LKey: e.mr.LKey()}
	e.recv[id] = ibv.RecvWR{WRID: uint64(id), SGList: ibv.AddrOf(&e.sge[id]), NumSGE: 1}
	return &e.recv[id]
}

func (e *end) postRecv(id, at, n int) {
	e.w.Helper()
	_, err := e.qp.PostRecv(e.receive(id, at, n))
	e.w.must(err)
}

// completion waits for the next one.
func (e *end) completion() *ibv.WC {
	e.w.Helper()
	e.w.await("a completion", func() bool {
		n, err := e.cq.Poll(e.wc[:1])
		e.w.must(err)
		return n == 1
	})
	return &e.wc[0]
}

// want waits for a completion, which has to be that one.
func (e *end) want(id int, status uint32) *ibv.WC {
	e.w.Helper()
	wc := e.completion()
	if wc.WRID != uint64(id) || wc.Status != status || wc.QPNum != e.qp.Num() {
		e.w.Fatalf("completion of %d with status %d on %#x, want %d with %d on %#x", wc.WRID, wc.Status, wc.QPNum, id, status, e.qp.Num())
	}
	return wc
}

// none fails the row when there is a completion.
func (e *end) none() {
	e.w.Helper()
	if n, err := e.cq.Poll(e.wc); n != 0 || err != nil {
		e.w.Fatalf("%d completions, %v, want none; the first is of %d with status %d", n, err, e.wc[0].WRID, e.wc[0].Status)
	}
}

// state wants the queue pair to be in a state.
func (e *end) state(want uint32) {
	e.w.Helper()
	if got, err := e.qp.State(); err != nil || got != want {
		e.w.Fatalf("the queue pair is in state %d, %v, want %d", got, err, want)
	}
}

// event waits for an asynchronous event; others before it are passed over.
func (e *end) event(types ...uint32) (got ibv.Event) {
	e.w.Helper()
	e.w.await("an event", func() bool {
		select {
		case got = <-e.events:
			return slices.Contains(types, got.Type)
		default:
			return false
		}
	})
	return got
}

// fill puts a pattern into memory.
func (e *end) fill(at, n int, seed byte) []byte {
	b := e.buf[at : at+n]
	for i := range b {
		b[i] = seed + byte(i) + byte(i>>8)*3
	}
	return b
}

// same wants the peer to have what an end has.
func same(w *world, a, b []byte) {
	w.Helper()
	if !bytes.Equal(a, b) {
		w.Fatalf("%d bytes differ", len(a))
	}
}
