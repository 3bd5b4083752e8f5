package main

import (
	"errors"
	"fmt"
	"time"

	"ncclmesh/ibv"
)

// pair is a queue pair connected to itself, with what it needs.
type pair struct {
	ctx      *ibv.Context
	pd       *ibv.PD
	cq       *ibv.CQ
	qp       *ibv.QP
	mr       *ibv.MR
	mem      *ibv.Memory
	gidIndex int

	words []uint64
	wr    []ibv.SendWR
	sge   []ibv.SGE
	wc    []ibv.WC
}

func newPair() (*pair, error) {
	lib, err := ibv.Load()
	if err != nil {
		return nil, err
	}
	devices, err := lib.Devices()
	if err != nil {
		return nil, err
	}
	if len(devices) == 0 {
		return nil, errors.New("there is no RDMA device; run it by make bench-ibv")
	}
	p := &pair{}
	if p.ctx, err = devices[0].Open(); err != nil {
		return nil, err
	}
	gid, err := firstRoCE(devices[0].Name())
	if err != nil {
		return nil, err
	}
	p.gidIndex = gid.Index
	if p.pd, err = p.ctx.AllocPD(); err != nil {
		return nil, err
	}
	if p.cq, err = p.ctx.CreateCQ(16, nil); err != nil {
		return nil, err
	}
	if p.mem, err = ibv.Alloc(4096); err != nil {
		return nil, err
	}
	p.words, p.wr, p.sge, p.wc = ibv.Carve[uint64](p.mem, 2), ibv.Carve[ibv.SendWR](p.mem, 1), ibv.Carve[ibv.SGE](p.mem, 1), ibv.Carve[ibv.WC](p.mem, 1)
	if p.mr, err = p.pd.RegMR(p.mem.Addr(), uintptr(p.mem.Len()), ibv.IBV_ACCESS_LOCAL_WRITE|ibv.IBV_ACCESS_REMOTE_WRITE); err != nil {
		return nil, err
	}
	p.qp, err = p.pd.CreateQP(ibv.QPInit{SendCQ: p.cq, RecvCQ: p.cq, MaxSendWR: 8, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 8, Type: ibv.IBV_QPT_RC})
	if err != nil {
		return nil, err
	}
	steps := []struct {
		attr ibv.QPAttr
		mask uint32
	}{
		{ibv.QPAttr{QPState: ibv.IBV_QPS_INIT, PortNum: 1, QPAccessFlags: ibv.IBV_ACCESS_REMOTE_WRITE},
			ibv.IBV_QP_STATE | ibv.IBV_QP_PKEY_INDEX | ibv.IBV_QP_PORT | ibv.IBV_QP_ACCESS_FLAGS},
		{ibv.QPAttr{QPState: ibv.IBV_QPS_RTR, PathMTU: ibv.IBV_MTU_1024, DestQPNum: p.qp.Num(), MaxDestRdAtomic: 1, MinRnrTimer: 1,
			AHAttr: ibv.AHAttr{IsGlobal: 1, PortNum: 1, GRH: ibv.GlobalRoute{DGID: gid.Addr.As16(), SGIDIndex: uint8(gid.Index), HopLimit: 255}}},
			ibv.IBV_QP_STATE | ibv.IBV_QP_AV | ibv.IBV_QP_PATH_MTU | ibv.IBV_QP_DEST_QPN | ibv.IBV_QP_RQ_PSN |
				ibv.IBV_QP_MAX_DEST_RD_ATOMIC | ibv.IBV_QP_MIN_RNR_TIMER},
		{ibv.QPAttr{QPState: ibv.IBV_QPS_RTS, Timeout: 14, RetryCnt: 7, RnrRetry: 7, MaxRdAtomic: 1},
			ibv.IBV_QP_STATE | ibv.IBV_QP_TIMEOUT | ibv.IBV_QP_RETRY_CNT | ibv.IBV_QP_RNR_RETRY | ibv.IBV_QP_SQ_PSN | ibv.IBV_QP_MAX_QP_RD_ATOMIC},
	}
	for _, s := range steps {
		if err := p.qp.Modify(&s.attr, s.mask); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// writes posts and polls count writes and returns the nanoseconds of one.
func (p *pair) writes(count int) (float64, error) {
	start := time.Now()
	for range count {
		p.sge[0] = ibv.SGE{Addr: uint64(ibv.AddrOf(&p.words[0])), Length: 8, LKey: p.mr.LKey()}
		p.wr[0] = ibv.SendWR{SGList: ibv.AddrOf(&p.sge[0]), NumSGE: 1, Opcode: ibv.IBV_WR_RDMA_WRITE,
			SendFlags: ibv.IBV_SEND_SIGNALED | ibv.IBV_SEND_INLINE, RemoteAddr: uint64(ibv.AddrOf(&p.words[1])), RKey: p.mr.RKey()}
		if _, err := p.qp.PostSend(&p.wr[0]); err != nil {
			return 0, err
		}
		for n := 0; n == 0; {
			var err error
			if n, err = p.cq.Poll(p.wc); err != nil {
				return 0, err
			}
		}
		if err := p.wc[0].Err("itself"); err != nil {
			return 0, fmt.Errorf("write: %w", err)
		}
	}
	return float64(time.Since(start).Nanoseconds()) / float64(count), nil
}

func (p *pair) close() error {
	return errors.Join(p.qp.Close(), p.mr.Close(), p.cq.Close(), p.pd.Close(), p.ctx.Close(), p.mem.Free())
}
