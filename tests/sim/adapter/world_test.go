package adapter_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"ncclmesh/guard"
	"ncclmesh/ibv"
	"ncclmesh/tests/sim/adapter"
	"ncclmesh/tests/sim/bus"
)

// gids is a table with the RoCE v2 GID of 10.0.net.host alone.
func gids(net, host byte) []adapter.GID {
	return []adapter.GID{{GID: ibv.GID{10: 0xff, 11: 0xff, 12: 10, 14: net, 15: host}, Type: ibv.IBV_GID_TYPE_ROCE_V2}}
}

// A world is nodes a, b and so on with a device each, in one subnet.
type world struct {
	*testing.T
	bus       *bus.Bus
	fabric    *adapter.Fabric
	devices   []*adapter.Device
	ports     []*adapter.Port
	processes []*adapter.Process
	clock     *bus.Source
}

func newWorld(t *testing.T, b *bus.Bus, nodes int) *world {
	w := &world{T: t, bus: b, fabric: adapter.New(b), clock: b.Source("test")}
	for i := range nodes {
		node := string(rune('a' + i))
		d := w.fabric.AddDevice(node, "mlx5_0", adapter.Usual)
		w.devices = append(w.devices, d)
		w.ports = append(w.ports, d.AddPort(adapter.PortConfig{GIDs: gids(0, byte(i+1))}))
		w.processes = append(w.processes, w.fabric.Process(node, "p"))
	}
	return w
}

// slow is a link on which things can be seen to take their time: 1 MB/ms.
var slow = adapter.LinkConfig{Rate: 1e9, Latency: 10 * time.Microsecond}

func (w *world) must(errs ...error) {
	w.Helper()
	if err := errors.Join(errs...); err != nil {
		w.Fatal(err)
	}
}

// An end is a queue pair of a node with its memory.
type end struct {
	w      *world
	ctx    *ibv.Context
	pd     *ibv.PD
	cq     *ibv.CQ
	qp     *ibv.QP
	mem    *ibv.Memory
	mr     *ibv.MR
	buf    []byte
	wr     []ibv.SendWR
	sge    []ibv.SGE
	recv   []ibv.RecvWR
	wc     []ibv.WC
	peer   *end
	events []ibv.Event
	stop   func()

	timeout, retry uint8
	path           *ibv.AHAttr // nil: the peer's GID
	node           int
}

const bufSize = 1 << 20

func (w *world) end(node int) *end {
	w.Helper()
	devices, err := ibv.Use(w.processes[node]).Devices()
	w.must(err)
	e := &end{w: w, timeout: 12, retry: 7, node: node}
	e.ctx, err = devices[0].Open()
	w.must(err)
	e.stop, err = e.ctx.Events(func(ev ibv.Event) { e.events = append(e.events, ev) }, func(*guard.Panic) {})
	w.must(err)
	e.pd, err = e.ctx.AllocPD()
	w.must(err)
	e.cq, err = e.ctx.CreateCQ(256, nil)
	w.must(err)
	e.qp, err = e.pd.CreateQP(ibv.QPInit{SendCQ: e.cq, RecvCQ: e.cq, MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1, Type: ibv.IBV_QPT_RC})
	w.must(err)
	e.mem, err = ibv.Alloc(bufSize + 1<<16)
	w.must(err)
	e.buf, e.wr, e.recv = ibv.Carve[byte](e.mem, bufSize), ibv.Carve[ibv.SendWR](e.mem, 64), ibv.Carve[ibv.RecvWR](e.mem, 64)
	e.sge, e.wc = ibv.Carve[ibv.SGE](e.mem, 64), ibv.Carve[ibv.WC](e.mem, 64)
	e.mr, err = e.pd.RegMR(ibv.AddrOf(&e.buf[0]), bufSize, ibv.IBV_ACCESS_LOCAL_WRITE|ibv.IBV_ACCESS_REMOTE_WRITE|ibv.IBV_ACCESS_REMOTE_READ)
	w.must(err)
	return e
}

// connect takes both ends to RTS.
func (w *world) connect(a, b *end) {
	w.Helper()
	a.peer, b.peer = b, a
	w.must(a.connect(), b.connect())
}

func (e *end) connect() error {
	ah := e.path
	if ah == nil {
		ah = &ibv.AHAttr{IsGlobal: 1, PortNum: 1, GRH: ibv.GlobalRoute{DGID: gids(0, byte(e.peer.node+1))[0].GID, HopLimit: 64}}
	}
	return errors.Join(
		e.qp.Modify(&ibv.QPAttr{QPState: ibv.IBV_QPS_INIT, PortNum: 1, QPAccessFlags: ibv.IBV_ACCESS_REMOTE_WRITE | ibv.IBV_ACCESS_REMOTE_READ},
			ibv.IBV_QP_STATE|ibv.IBV_QP_PKEY_INDEX|ibv.IBV_QP_PORT|ibv.IBV_QP_ACCESS_FLAGS),
		e.qp.Modify(&ibv.QPAttr{QPState: ibv.IBV_QPS_RTR, AHAttr: *ah, PathMTU: ibv.IBV_MTU_1024, DestQPNum: e.peer.qp.Num(),
			RQPSN: 7, MaxDestRdAtomic: 4, MinRnrTimer: 1},
			ibv.IBV_QP_STATE|ibv.IBV_QP_AV|ibv.IBV_QP_PATH_MTU|ibv.IBV_QP_DEST_QPN|ibv.IBV_QP_RQ_PSN|ibv.IBV_QP_MAX_DEST_RD_ATOMIC|ibv.IBV_QP_MIN_RNR_TIMER),
		e.qp.Modify(&ibv.QPAttr{QPState: ibv.IBV_QPS_RTS, SQPSN: 7, MaxRdAtomic: 4, Timeout: e.timeout, RetryCnt: e.retry, RnrRetry: 7},
			ibv.IBV_QP_STATE|ibv.IBV_QP_TIMEOUT|ibv.IBV_QP_RETRY_CNT|ibv.IBV_QP_RNR_RETRY|ibv.IBV_QP_SQ_PSN|ibv.IBV_QP_MAX_QP_RD_ATOMIC))
}

// close gives everything back.
func (e *end) close() {
	e.w.Helper()
	e.w.must(e.qp.Close())
	e.stop()
	e.w.must(e.cq.Close(), e.mr.Close(), e.pd.Close(), e.ctx.Close(), e.mem.Free())
}

// post posts a signalled request; id is also its place among the requests.
func (e *end) post(id int, op uint32, at, n, to int) error {
	i := id % len(e.wr)
	e.sge[i] = ibv.SGE{Addr: uint64(ibv.AddrOf(&e.buf[0])) + uint64(at), Length: uint32(n), LKey: e.mr.LKey()}
	e.wr[i] = ibv.SendWR{WRID: uint64(id), Opcode: op, SendFlags: ibv.IBV_SEND_SIGNALED, SGList: ibv.AddrOf(&e.sge[i]), NumSGE: 1,
		RemoteAddr: uint64(ibv.AddrOf(&e.peer.buf[0])) + uint64(to), RKey: e.peer.mr.RKey()}
	_, err := e.qp.PostSend(&e.wr[i])
	return err
}

func (e *end) postRecv(id int) {
	e.w.Helper()
	e.recv[0] = ibv.RecvWR{WRID: uint64(id)}
	_, err := e.qp.PostRecv(&e.recv[0])
	e.w.must(err)
}

// completion waits for the next completion.
func (e *end) completion() ibv.WC {
	e.w.Helper()
	pause := 10 * time.Microsecond
	for begun := e.w.bus.Now(); e.w.bus.Now()-begun < time.Hour; pause = min(pause*2, 100*time.Microsecond) {
		n, err := e.cq.Poll(e.wc[:1])
		e.w.must(err)
		if n == 1 {
			return e.wc[0]
		}
		e.w.clock.Sleep(pause)
	}
	e.w.Fatal("a completion has not come")
	return ibv.WC{}
}

func (e *end) want(id int, status uint32) {
	e.w.Helper()
	if wc := e.completion(); wc.WRID != uint64(id) || wc.Status != status {
		e.w.Fatalf("completion of %d with status %d, want %d with %d", wc.WRID, wc.Status, id, status)
	}
}

// names lists the asynchronous events so far.
func (e *end) names() (s []string) {
	e.w.clock.Sleep(0)
	for _, ev := range e.events {
		s = append(s, ev.Name)
	}
	return s
}

// pattern fills memory with something that depends on its place and on a number.
func pattern(b []byte, n int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8 + n*31)
	}
}

// try runs f in a bubble with a world of nodes on one link.
func try(t *testing.T, nodes int, f func(w *world, l *adapter.Link)) {
	t.Helper()
	bus.Run(t, 1, func(t *testing.T, b *bus.Bus) {
		w := newWorld(t, b, nodes)
		f(w, w.fabric.Connect(slow, w.ports...))
		for i, p := range w.processes {
			if left := p.Objects(); len(left) > 0 {
				t.Errorf("node %d has left %v", i, left)
			}
		}
		if live := fmt.Sprint(ibv.Live()); live != "map[]" {
			t.Errorf("left open: %s", live)
		}
	})
}
