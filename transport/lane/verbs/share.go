package verbs

import (
	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// This file holds the methods of a Port that package circuit uses as well.

// Context returns the port's open device.
func (p *Port) Context() *ibv.Context { return p.ctx }

// PD returns the protection domain in which user memory is registered.
func (p *Port) PD() *ibv.PD { return p.pd }

// Attr returns the port attributes as last queried.
func (p *Port) Attr() *ibv.PortAttr { return p.attr.Load() }

// Reads returns how many READs a queue pair may have outstanding as requester (begun) and as responder
// (answered), each limited to most.
func (p *Port) Reads(most int) (begun, answered uint8) {
	return uint8(min(most, p.maxReads)), uint8(min(most, p.maxReadsIn))
}

// RegisterFor registers memory for a connection, and opens its loopback if it receives into GPU memory. A range that
// lies in one that somebody has registered shares its registration.
func (p *Port) RegisterFor(c *lane.Shared, b *Loopback, m lane.Memory) (lane.Registration, error) {
	if m.Kind == lane.GPUMemory && !c.Sending {
		if err := b.Open(p); err != nil {
			return nil, err
		}
	}
	h, err := p.hold(m, p.access(m.Kind))
	if err != nil {
		return nil, err
	}
	return h, nil
}

// RegisterToCopy registers memory that the device itself reads, by a [Loopback], as well as writes. A range that lies in one
// that somebody has registered so shares its registration, and connections share this one.
func (p *Port) RegisterToCopy(m lane.Memory) (lane.Registration, error) {
	h, err := p.hold(m, p.access(m.Kind)|ibv.IBV_ACCESS_REMOTE_READ)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// PSN returns a random first packet sequence number for the queue pair named by whose.
func (p *Port) PSN(whose any) uint32 {
	return uint32(p.opts.Random.For(whose).Uint64("first packet")) & 0xffffff
}

// Token returns a random value for the peer's probe packet to the queue pair named by whose. It is never 0,
// because memory starts as 0.
func (p *Port) Token(whose any) uint64 { return p.opts.Random.For(whose).Uint64("token") | 1 }

// Half fills in the description of a queue pair at address from for the peer.
func (p *Port) Half(h *handshake.Lane, from topology.Address, qpn, psn uint32) {
	attr := p.attr.Load()
	h.QPN, h.PSN = qpn, psn
	h.Addr, h.GIDIndex = from.Addr, uint16(from.Index)
	h.LID, h.MTU, h.MaxMsg = attr.LID, uint8(attr.ActiveMTU), attr.MaxMsgSz
}

// Init takes a queue pair to INIT. access says what the peer may do to memory. It returns the options that this end offers
// to the peer; see ece.go.
func (p *Port) Init(qp *ibv.QP, access uint32) (handshake.ECE, error) {
	if err := p.init(qp, access); err != nil {
		return handshake.ECE{}, err
	}
	return p.offeredECE(qp)
}

func (p *Port) init(qp *ibv.QP, access uint32) error {
	return qp.Modify(&ibv.QPAttr{
		QPState:       ibv.IBV_QPS_INIT,
		PkeyIndex:     uint16(p.opts.PKeyIndex),
		PortNum:       p.Now().Num,
		QPAccessFlags: access,
	}, ibv.IBV_QP_STATE|ibv.IBV_QP_PKEY_INDEX|ibv.IBV_QP_PORT|ibv.IBV_QP_ACCESS_FLAGS)
}

// Link holds the parameters that connect a queue pair to its peer.
type Link struct {
	From     topology.Address // address of the local port
	Remote   handshake.Lane   // the peer's half
	PSN      uint32           // this side's
	ECE      handshake.ECE    // options that this side can do, as Init returned them
	Probe    bool             // the queue pair only carries probe packets
	Begun    uint8            // READs that it may have outstanding as requester, at least 1
	Answered uint8            // READs that it may have outstanding as responder
}

// Join takes a queue pair to RTS. The transition to RTR may block in the kernel for a second while it resolves
// the peer's address. Join returns the options that are in effect, which a side that answers tells its peer; see ece.go.
func (p *Port) Join(qp *ibv.QP, k Link) (agreed handshake.ECE, err error) {
	err = p.opts.Resolving.Do(func() error {
		set, err := p.setECE(qp, k.ECE, k.Remote.ECE)
		if err != nil {
			return err
		}
		if err := p.join(qp, k); err != nil || !set {
			return err
		}
		agreed, err = p.queryECE(qp)
		return err
	})
	return agreed, err
}

func (p *Port) join(qp *ibv.QP, k Link) error {
	attr, o, remote := p.attr.Load(), &p.opts, &k.Remote
	ah := ibv.AHAttr{PortNum: p.Now().Num, SL: uint8(o.ServiceLevel)}
	if attr.LinkLayer == ibv.IBV_LINK_LAYER_ETHERNET {
		ah.IsGlobal = 1
		ah.GRH = ibv.GlobalRoute{DGID: ibv.GID(remote.Addr.As16()), SGIDIndex: uint8(k.From.Index), HopLimit: 255, TrafficClass: uint8(o.TrafficClass)}
	} else {
		ah.DLID = remote.LID
	}
	err := qp.Modify(&ibv.QPAttr{
		QPState: ibv.IBV_QPS_RTR, AHAttr: ah,
		PathMTU:   min(attr.ActiveMTU, uint32(remote.MTU)),
		DestQPNum: remote.QPN, RQPSN: remote.PSN,
		MaxDestRdAtomic: k.Answered, MinRnrTimer: 1, // 0.01 ms, the shortest
	}, ibv.IBV_QP_STATE|ibv.IBV_QP_AV|ibv.IBV_QP_PATH_MTU|ibv.IBV_QP_DEST_QPN|ibv.IBV_QP_RQ_PSN|
		ibv.IBV_QP_MAX_DEST_RD_ATOMIC|ibv.IBV_QP_MIN_RNR_TIMER)
	if err != nil {
		return err
	}
	timeout := o.Timeout
	if k.Probe {
		timeout = o.ProbeTimeout
	}
	return qp.Modify(&ibv.QPAttr{
		QPState: ibv.IBV_QPS_RTS, SQPSN: k.PSN, MaxRdAtomic: k.Begun,
		Timeout: uint8(timeout), RetryCnt: uint8(o.RetryCount), RnrRetry: uint8(o.RNRRetry),
	}, ibv.IBV_QP_STATE|ibv.IBV_QP_TIMEOUT|ibv.IBV_QP_RETRY_CNT|ibv.IBV_QP_RNR_RETRY|
		ibv.IBV_QP_SQ_PSN|ibv.IBV_QP_MAX_QP_RD_ATOMIC)
}
