package transport

import (
	"errors"
	"fmt"

	"ncclmesh/ibv"
)

const pollBatch = 32 // completions taken at once

// device is one device of a connection: its completion queue and the
// registration of the connection's wire on it.
type device struct {
	port  *port
	cq    *ibv.CQ
	wire  *ibv.MR
	wc    []ibv.WC
	sends int          // signalled sends whose completion has not been polled
	qps   []*queuePair // of the connection, by lane; nil for lanes of other devices
}

// deviceNeed is what the lanes over one port ask of its device.
type deviceNeed struct {
	port   *port
	lanes  int // queue pairs
	writes int // work requests that the largest part takes
}

// setUpDevices creates the connection's memory and, on every device, its
// completion queue and the registration of its wire.
func (c *conn) setUpDevices(needs []deviceNeed) error {
	size := wireSize + len(needs)*(pollBatch*48+64)
	for _, n := range needs {
		size += n.lanes * (n.writes*(128+16) + recvBatch*32 + 3*64)
	}
	var err error
	if c.mem, err = ibv.Alloc(size); err != nil {
		return err
	}
	c.wire, c.wireBase = carveWire(c.mem)
	for _, n := range needs {
		d := &device{port: n.port, wc: ibv.Carve[ibv.WC](c.mem, pollBatch)}
		c.devs = append(c.devs, d)
		depth := sendSlack + recvDepth
		switch {
		case c.trial:
			depth = trialDepth
		case c.sending:
			depth = 2 * (window + n.writes)
		}
		depth = n.lanes * (depth + 2)
		if depth > n.port.maxCQE {
			return fmt.Errorf("%s: %d queue pairs need a completion queue of %d entries and the device has %d; lower NCCL_IB_QPS_PER_CONNECTION", n.port.String(), n.lanes, depth, n.port.maxCQE)
		}
		if d.cq, err = n.port.ctx.CreateCQ(depth, nil); err != nil {
			return err
		}
		if d.wire, err = n.port.pd.RegMR(c.wireBase, wireSize, ibv.IBV_ACCESS_LOCAL_WRITE|ibv.IBV_ACCESS_REMOTE_WRITE); err != nil {
			return err
		}
	}
	return nil
}

func (d *device) close() error {
	var errs []error
	if d.cq != nil {
		errs = append(errs, d.cq.Close())
	}
	if d.wire != nil {
		errs = append(errs, d.wire.Close())
	}
	return errors.Join(errs...)
}

// pollDevice takes what completions there are from a device.
func (c *conn) pollDevice(d *device) {
	for {
		n, err := d.cq.Poll(d.wc)
		if err != nil {
			c.fail(fmt.Errorf("%v: %s: %w", c, d.port.String(), err))
			return
		}
		for i := range n {
			c.complete(d, &d.wc[i])
		}
		if n < len(d.wc) {
			return
		}
	}
}

// complete dispatches one completion to what it belongs to.
func (c *conn) complete(d *device, wc *ibv.WC) {
	kind, index := uint8(wc.WRID>>56), int(uint8(wc.WRID>>48))
	if index >= len(d.qps) || d.qps[index] == nil || d.qps[index].qp.Num() != wc.QPNum {
		c.fail(fmt.Errorf("%w: %v: completion of unknown work request %#x on queue pair %d", ErrInternal, c, wc.WRID, wc.QPNum))
		return
	}
	q := d.qps[index]
	request := -1
	switch kind {
	case wrPart, wrGrant, wrProof:
		if credits := int(uint16(wc.WRID >> 16)); credits > 0 { // a signalled one
			d.sends--
			q.credits += credits
		}
		if kind == wrPart {
			request = int(uint16(wc.WRID >> 32))
		}
	case wrRecv:
		q.posted--
	case wrMarker:
		q.marks++
		return
	}
	ok := wc.Status == ibv.IBV_WC_SUCCESS
	switch {
	case kind == wrProof && ok:
		q.proof = proofDone
	case kind == wrProof:
		q.proof, q.proofErr = proofFailed, q.wcError(wc)
	case !ok && !q.up && request < 0: // out of service already
	case !ok:
		q.up = false
		err := q.wcError(wc)
		if why := c.ended(); why != nil && wc.Status == ibv.IBV_WC_WR_FLUSH_ERR {
			err = why // of which the flush is a consequence
		} else if kind == wrRecv {
			err = c.blame(err)
		}
		c.half.failed(q.lane, request, err)
	case kind == wrPart:
		c.half.delivered(q.lane, request)
	case kind == wrRecv && wc.Opcode != ibv.IBV_WC_RECV_RDMA_WITH_IMM:
		c.fail(fmt.Errorf("%w: %v: %v: unexpected completion %d on the receive queue", ErrProtocol, c, q.lane, wc.Opcode))
	case kind == wrRecv:
		v := networkOrder(wc.Imm)
		m, _ := decodeImm(v)
		c.half.received(q.lane, v, int64(m.writes)*int64(q.chunk)+int64(wc.ByteLen))
	}
}

// wcError turns a failed completion into an error that names both ends.
func (q *queuePair) wcError(wc *ibv.WC) error {
	kind, hint := error(ErrLane), ""
	switch wc.Status {
	case ibv.IBV_WC_RETRY_EXC_ERR:
		hint = "; the peer or the cable stopped answering: check both ports and the cable between them"
	case ibv.IBV_WC_RNR_RETRY_EXC_ERR, ibv.IBV_WC_REM_ACCESS_ERR, ibv.IBV_WC_REM_INV_REQ_ERR, ibv.IBV_WC_REM_OP_ERR, ibv.IBV_WC_WR_FLUSH_ERR:
	default:
		kind = errDevice
	}
	return fmt.Errorf("%w: %v: %v: %w%s", kind, q.conn, q.lane, wc.Err(q.conn.s.Name()), hint)
}

// errDevice marks what went wrong on this side of a lane.
var errDevice = errors.New("local device failed")
