package verbs

import (
	"fmt"

	"ncclmesh/ibv"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// complete dispatches one completion to its queue pair. A completion in error takes the queue pair's lane out
// of service.
func (d *domain) complete(wc *ibv.WC) {
	kind, index := uint8(wc.WRID>>56), int(uint8(wc.WRID>>48))
	if index >= len(d.qps) || d.qps[index] == nil || d.qps[index].qp.Num() != wc.QPNum {
		if d.undrained {
			return // the completion belongs to a queue pair that was destroyed
		}
		d.conn.Owner.Fail(fmt.Errorf("%w: %v: completion of unknown work request %#x on queue pair %d", fault.ErrInternal, d.conn, wc.WRID, wc.QPNum))
		return
	}
	q := d.qps[index]
	if credits := int(uint16(wc.WRID >> 16)); credits > 0 { // a signalled send
		d.sends--
		q.credits += credits
	}
	ok := wc.Status == ibv.IBV_WC_SUCCESS
	request, part := int(uint16(wc.WRID>>32)), int(uint16(wc.WRID))
	if kind == wrRecv {
		q.posted--
	}
	switch {
	case kind == wrMarker:
		q.markersFlushed++
	case kind == wrProbe && ok:
		q.probe = probeDone
	case kind == wrProbe:
		q.probe, q.probeErr = probeFailed, q.wcError(wc)
	case !ok:
		q.handleError(wc)
	case kind == wrPart:
		d.conn.Sink.Delivered(q.lane, request, part)
	case kind == wrGrantAgain:
		d.conn.Sink.Regranted(q.lane, uint8(request))
	case kind == wrRecv:
		q.handleArrival(wc)
	}
}

// handleError handles a completion in error. An access or length error ends the connection, because the
// adapters would refuse the request on any lane; any other error breaks this lane.
func (q *queuePair) handleError(wc *ibv.WC) {
	switch wc.Status {
	case ibv.IBV_WC_LOC_LEN_ERR, ibv.IBV_WC_LOC_PROT_ERR, ibv.IBV_WC_LOC_ACCESS_ERR, ibv.IBV_WC_REM_ACCESS_ERR, ibv.IBV_WC_REM_INV_REQ_ERR:
		q.lane.Conn.Owner.Fail(q.wcError(wc))
	default:
		if q.lane.InService() {
			q.lane.Break(q.wcError(wc))
		}
	}
}

// handleArrival reports a part to the message layer when its last write has arrived.
func (q *queuePair) handleArrival(wc *ibv.WC) {
	if wc.Opcode != ibv.IBV_WC_RECV_RDMA_WITH_IMM {
		q.lane.Conn.Owner.Fail(fmt.Errorf("%w: %v: %v: unexpected completion %d on the receive queue", fault.ErrProtocol, q.lane.Conn, q.lane, wc.Opcode))
		return
	}
	v := networkOrder(wc.Imm)
	var m lane.Imm
	m.Decode(v)
	q.lane.Conn.Sink.Arrived(q.lane, v, int64(m.Writes)*int64(q.chunk)+int64(wc.ByteLen))
}

// wcError returns the error of a failed completion, with the names of both ends. The error of a flushed request
// is wrapped in [lane.Flushed], because another failure has caused it.
func (q *queuePair) wcError(wc *ibv.WC) error {
	kind, hint := error(fault.ErrLane), ""
	cause := wc.Err(q.lane.Conn.Session.Name())
	switch wc.Status {
	case ibv.IBV_WC_RETRY_EXC_ERR:
		hint = "; the peer or the cable stopped answering: check both ports and the cable between them"
	case ibv.IBV_WC_WR_FLUSH_ERR:
		cause = lane.Flushed{Cause: cause}
	case ibv.IBV_WC_RNR_RETRY_EXC_ERR, ibv.IBV_WC_REM_ACCESS_ERR, ibv.IBV_WC_REM_INV_REQ_ERR, ibv.IBV_WC_REM_OP_ERR:
	default:
		kind = fault.ErrDevice
	}
	return fmt.Errorf("%w: %v: %v: %w%s", kind, q.lane.Conn, q.lane, cause, hint)
}
