package conformance

import (
	"errors"
	"syscall"

	"ncclmesh/ibv"
)

const (
	reset  = ibv.IBV_QPS_RESET
	initS  = ibv.IBV_QPS_INIT
	rtr    = ibv.IBV_QPS_RTR
	rts    = ibv.IBV_QPS_RTS
	sqd    = ibv.IBV_QPS_SQD
	failed = ibv.IBV_QPS_ERR
)

// stateRows are about states, attributes, and limits.
var stateRows = []row{
	on("states come one after the other", func(a, b *end) {
		for _, step := range []struct {
			from []uint32 // after RESET
			to   uint32
			can  bool
		}{
			{nil, rtr, false}, {nil, rts, false}, {nil, sqd, false}, {nil, failed, true}, {nil, reset, true},
			{[]uint32{initS}, initS, true}, {[]uint32{initS}, rts, false}, {[]uint32{initS}, failed, true},
			{[]uint32{initS, rtr}, initS, false}, {[]uint32{initS, rtr}, rtr, false}, {[]uint32{initS, rtr}, failed, true},
			{[]uint32{initS, rtr, rts}, sqd, true}, {[]uint32{initS, rtr, rts}, initS, false}, {[]uint32{initS, rtr, rts}, reset, true},
			{[]uint32{failed}, initS, false}, {[]uint32{failed}, rts, false}, {[]uint32{failed}, reset, true},
		} {
			a.w.must(a.to(reset))
			for _, s := range step.from {
				a.w.must(a.to(s))
			}
			before, err := a.qp.State()
			a.w.must(err)
			switch err := a.to(step.to); {
			case step.can && err != nil:
				a.w.Errorf("from %v to %d: %v", step.from, step.to, err)
			case step.can:
				a.state(step.to)
			case !errors.Is(err, syscall.EINVAL):
				a.w.Errorf("from %v to %d: %v, want EINVAL", step.from, step.to, err)
			default:
				a.state(before)
			}
		}
	}, wish{fresh: true}),
	on("each attribute that a state needs is needed", func(a, b *end) {
		for _, to := range []uint32{initS, rtr, rts} {
			attr, mask := a.attributes(to)
			for bit := uint32(2); bit != 0; bit <<= 1 {
				if mask&bit == 0 {
					continue
				}
				if err := a.qp.Modify(attr, mask&^bit); !errors.Is(err, syscall.EINVAL) {
					a.w.Errorf("to %d without %#x: %v, want EINVAL", to, bit, err)
				}
			}
			if err := a.qp.Modify(attr, mask|ibv.IBV_QP_QKEY); !errors.Is(err, syscall.EINVAL) {
				a.w.Errorf("to %d with a queue key: %v, want EINVAL", to, err)
			}
			a.w.must(a.to(to))
		}
	}, wish{fresh: true}),
	on("values out of range are refused", func(a, b *end) {
		for name, tt := range map[string]struct {
			to     uint32
			change func(*ibv.QPAttr)
		}{
			"port 2":            {initS, func(q *ibv.QPAttr) { q.PortNum = 2 }},
			"port 0":            {initS, func(q *ibv.QPAttr) { q.PortNum = 0 }},
			"partition 1":       {initS, func(q *ibv.QPAttr) { q.PkeyIndex = 1 }},
			"path MTU 0":        {rtr, func(q *ibv.QPAttr) { q.PathMTU = 0 }},
			"path MTU 4096":     {rtr, func(q *ibv.QPAttr) { q.PathMTU = ibv.IBV_MTU_4096 }},
			"peer":              {rtr, func(q *ibv.QPAttr) { q.DestQPNum = 1 << 24 }},
			"PSN":               {rtr, func(q *ibv.QPAttr) { q.RQPSN = 1 << 24 }},
			"port of the path":  {rtr, func(q *ibv.QPAttr) { q.AHAttr.PortNum = 2 }},
			"GID index":         {rtr, func(q *ibv.QPAttr) { q.AHAttr.GRH.SGIDIndex = 200 }},
			"no GID":            {rtr, func(q *ibv.QPAttr) { q.AHAttr.IsGlobal = 0 }},
			"reads answered":    {rtr, func(q *ibv.QPAttr) { q.MaxDestRdAtomic = 255 }},
			"RNR timer":         {rtr, func(q *ibv.QPAttr) { q.MinRnrTimer = 32 }},
			"time-out":          {rts, func(q *ibv.QPAttr) { q.Timeout = 32 }},
			"retries":           {rts, func(q *ibv.QPAttr) { q.RetryCnt = 8 }},
			"RNR retries":       {rts, func(q *ibv.QPAttr) { q.RnrRetry = 8 }},
			"reads outstanding": {rts, func(q *ibv.QPAttr) { q.MaxRdAtomic = 255 }},
			"first PSN":         {rts, func(q *ibv.QPAttr) { q.SQPSN = 1 << 24 }},
		} {
			a.w.must(a.to(reset))
			for s := uint32(initS); s < tt.to; s++ {
				a.w.must(a.to(s))
			}
			attr, mask := a.attributes(tt.to)
			tt.change(attr)
			if err := a.qp.Modify(attr, mask); !errors.Is(err, syscall.EINVAL) {
				a.w.Errorf("%s: %v, want EINVAL", name, err)
			}
			a.state(tt.to - 1)
		}
	}, wish{fresh: true}),
	on("a neighbour that is not there is not found", func(a, b *end) {
		attr, mask := a.attributes(rtr)
		attr.AHAttr.GRH.DGID[15] = 77
		if err := a.qp.Modify(attr, mask); !errors.Is(err, syscall.ETIMEDOUT) {
			a.w.Errorf("%v, want ETIMEDOUT", err)
		}
		a.state(initS)
	}, wish{state: initS}),
	on("attributes are kept", func(a, b *end) {
		got, err := a.qp.Query(ibv.IBV_QP_STATE | ibv.IBV_QP_AV | ibv.IBV_QP_TIMEOUT | ibv.IBV_QP_RETRY_CNT)
		a.w.must(err)
		if got.AHAttr.GRH.DGID != b.gid.Addr.As16() || got.DestQPNum != b.qp.Num() || got.Timeout != 18 || got.RetryCnt != 7 || got.QPState != rts {
			a.w.Errorf("%+v", got)
		}
	}),
	on("what each state lets be posted", func(a, b *end) {
		for _, tt := range []struct {
			state      uint32
			send, recv error
		}{
			{reset, syscall.EINVAL, syscall.EINVAL}, {initS, syscall.EINVAL, nil}, {rtr, syscall.EINVAL, nil}, {rts, nil, nil},
		} {
			if tt.state != reset {
				a.w.must(a.to(tt.state))
			}
			_, err := a.qp.PostRecv(a.receive(1, 0, 8))
			if !errors.Is(err, tt.recv) || tt.recv == nil && err != nil {
				a.w.Errorf("receive in state %d: %v, want %v", tt.state, err, tt.recv)
			}
			_, err = a.qp.PostSend(a.send(2, opWrite, 0, 8, 0, 0))
			if !errors.Is(err, tt.send) || tt.send == nil && err != nil {
				a.w.Errorf("send in state %d: %v, want %v", tt.state, err, tt.send)
			}
		}
	}, wish{fresh: true}, wish{state: rtr}),
	on("a receiver needs no more than RTR", func(a, b *end) {
		b.postRecv(1, 0, 100)
		a.post(1, opSend, 0, 100, 0)
		a.want(1, ok)
		b.want(1, ok)
		b.state(rtr)
	}, wish{}, wish{state: rtr}),
	on("reset forgets everything", func(a, b *end) {
		b.w.must(b.cq.ReqNotify(false))
		b.postRecv(1, 0, 8)
		b.postRecv(2, 0, 8)
		a.post(1, opSend, 0, 8, 0)
		a.want(1, ok)
		b.wake() // its completion is there
		a.w.must(a.to(reset), b.to(reset))
		b.none()
		for _, s := range []uint32{initS, rtr, rts} {
			a.w.must(a.to(s), b.to(s))
		}
		b.postRecv(3, 0, 8)
		a.post(4, opSend, 0, 8, 0)
		a.want(4, ok)
		b.want(3, ok)
		b.none()
	}),
	on("a destroyed queue pair takes its completions along", func(a, b *end) {
		a.w.must(a.cq.ReqNotify(false))
		a.post(1, opWrite, 0, 8, 0)
		a.wake() // it is there
		old := a.qp
		a.qp = nil
		a.w.must(old.Close())
		a.none()
		a.makeQP()
		if a.qp.Num() == old.Num() {
			a.w.Errorf("its number, %#x, was given out again at once", old.Num())
		}
	}),
	on("a full send queue refuses more, until a completion is polled", func(a, b *end) {
		for i := range 4 {
			a.posted(a.send(i, opWrite, 0, 8, 0, map[bool]uint32{true: signaled}[i == 2]))
		}
		full := func() {
			a.w.Helper()
			if bad, err := a.qp.PostSend(a.send(5, opWrite, 0, 8, 0, signaled)); !errors.Is(err, syscall.ENOMEM) || bad != &a.wr[5] {
				a.w.Fatalf("a full queue: %v, want ENOMEM", err)
			}
		}
		full()
		a.want(2, ok) // and with it the two before, not the one behind
		for i := 6; i < 9; i++ {
			a.posted(a.send(i, opWrite, 0, 8, 0, signaled))
		}
		full()
		for i := 6; i < 9; i++ {
			a.want(i, ok)
		}
	}, wish{sendWR: 4}),
	on("a full receive queue refuses more", func(a, b *end) {
		for i := range 3 {
			b.postRecv(i, 0, 8)
		}
		if bad, err := b.qp.PostRecv(b.receive(3, 0, 8)); !errors.Is(err, syscall.ENOMEM) || bad != &b.recv[3] {
			a.w.Fatalf("%v, want ENOMEM", err)
		}
		a.post(1, opSend, 0, 8, 0)
		a.want(1, ok)
		b.want(0, ok)
		b.postRecv(4, 0, 8)
	}, wish{recvWR: 3}),
	on("requests beyond the limits of the queue pair", func(a, b *end) {
		for name, change := range map[string]func(*ibv.SendWR){
			"five entries":       func(wr *ibv.SendWR) { wr.NumSGE = 5 },
			"entries below 0":    func(wr *ibv.SendWR) { wr.NumSGE = -1 },
			"too much inline":    func(wr *ibv.SendWR) { wr.SendFlags |= ibv.IBV_SEND_INLINE; a.sge[1].Length = 65 },
			"an inline read":     func(wr *ibv.SendWR) { wr.Opcode = opRead; wr.SendFlags |= ibv.IBV_SEND_INLINE },
			"a read, not agreed": func(wr *ibv.SendWR) { wr.Opcode = opRead },
		} {
			wr := a.send(1, opWrite, 0, 8, 0, signaled)
			change(wr)
			if _, err := a.qp.PostSend(wr); !errors.Is(err, syscall.EINVAL) {
				a.w.Errorf("%s: %v, want EINVAL", name, err)
			}
		}
		a.post(2, opWrite, 0, 8, 0)
		a.want(2, ok)
	}, wish{inline: 64, reads: -1}),
	{name: "what a device cannot make is refused", run: func(w *world) {
		e := newEnd(w, "rdma0", wish{})
		for name, init := range map[string]ibv.QPInit{
			"requests": {MaxSendWR: 1 << 20}, "receives": {MaxRecvWR: 1 << 20}, "entries": {MaxSendSGE: 1000}, "inline": {MaxInline: 1 << 20},
		} {
			init.SendCQ, init.RecvCQ, init.Type = e.cq, e.cq, ibv.IBV_QPT_RC
			if _, err := e.pd.CreateQP(init); !errors.Is(err, syscall.EINVAL) {
				w.Errorf("%s: %v, want EINVAL", name, err)
			}
		}
		for _, n := range []int{0, -1, 1 << 30} {
			if _, err := e.ctx.CreateCQ(n, nil); !errors.Is(err, syscall.EINVAL) {
				w.Errorf("a completion queue of %d: %v, want EINVAL", n, err)
			}
		}
		if _, err := e.pd.CreateQP(ibv.QPInit{SendCQ: e.cq, RecvCQ: e.cq, Type: ibv.IBV_QPT_UD}); !errors.Is(err, ibv.ErrNotSupported) {
			w.Errorf("a datagram queue pair: %v", err)
		}
		e.close()
	}},
	{name: "regions that must not be", run: func(w *world) {
		e := newEnd(w, "rdma0", wish{})
		addr := ibv.AddrOf(&e.buf[0])
		for name, tt := range map[string]struct {
			addr, length uintptr
			access       uint32
			want         error
		}{
			"empty":                         {addr, 0, all, syscall.EINVAL},
			"nowhere":                       {0, 4096, all, syscall.EFAULT},
			"larger than memory":            {addr, 1 << 46, all, syscall.EFAULT},
			"remote write but no local one": {addr, 4096, ibv.IBV_ACCESS_REMOTE_WRITE, syscall.EINVAL},
		} {
			if _, err := e.pd.RegMR(tt.addr, tt.length, tt.access); !errors.Is(err, tt.want) {
				w.Errorf("%s: %v, want %v", name, err, tt.want)
			}
		}
		relaxed, err := e.pd.RegMR(addr, 4096, all|ibv.IBV_ACCESS_RELAXED_ORDERING)
		w.must(err)
		w.must(relaxed.Close())
		e.close()
	}},
	{name: "ports and their tables", run: func(w *world) {
		e := newEnd(w, "rdma1", wish{})
		attr, err := e.ctx.QueryPort(1)
		w.must(err)
		if attr.State != ibv.IBV_PORT_ACTIVE || attr.ActiveMTU != ibv.IBV_MTU_1024 || attr.LinkLayer != ibv.IBV_LINK_LAYER_ETHERNET || attr.MaxMsgSz != 1<<30 {
			w.Errorf("port: %+v", attr)
		}
		if mbps, err := e.ctx.PortSpeed(1); err != nil || mbps != 100_000 {
			w.Errorf("speed %d, %v", mbps, err)
		}
		for _, port := range []uint8{0, 2} {
			if _, err := e.ctx.QueryPort(port); !errors.Is(err, syscall.EINVAL) {
				w.Errorf("port %d: %v, want EINVAL", port, err)
			}
		}
		dev, err := e.ctx.QueryDevice()
		w.must(err)
		if dev.PhysPortCnt != 1 || dev.MaxQPWR < 8192 || dev.MaxQPRdAtom < 1 {
			w.Errorf("device: %+v", dev)
		}
		e.close()
	}},
}
