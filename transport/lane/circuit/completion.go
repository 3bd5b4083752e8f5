package circuit

import (
	"fmt"

	"ncclmesh/ibv"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/relay/hop"
)

// alive reports whether the lane may post new requests.
func (c *carrier) alive() bool {
	return c.broken == nil && !c.stopped && c.joined.Load() && c.lane.State() != lane.Down && c.lane.State() != lane.Stopped
}

// poll handles completions, sends queued frames, and returns credits to the relay.
func (c *carrier) poll() {
	if !c.joined.Load() && !c.stopped || c.half == nil {
		return
	}
	for {
		n, err := c.cq.Poll(c.wc)
		if err != nil {
			c.fail(fmt.Errorf("%w: %v: %v: %w", fault.ErrDevice, c.lane.Conn, c.lane, err))
			return
		}
		for i := range n {
			c.complete(&c.wc[i])
		}
		if n < len(c.wc) {
			break
		}
	}
	if !c.alive() {
		return
	}
	if err := c.flush(); err != nil {
		c.fail(err)
		return
	}
	if !c.lane.Conn.Sending { // READs that have waited for other circuits of the domain
		if err := c.startReads(); err != nil {
			c.fail(c.wrap(err))
			return
		}
	}
	freed, every := c.next-1, uint64(hop.BackEvery)
	if !c.lane.Conn.Sending {
		freed, every = c.delivered, 1
	}
	if err := c.half.SendCredit(freed, freed, every); err != nil {
		c.fail(c.wrap(err))
	}
}

// flush sends the queued frames that the window has room for.
func (c *carrier) flush() error {
	if c.lane.Conn.Sending {
		return c.flushParts()
	}
	return c.flushGrants()
}

// complete handles a completion.
func (c *carrier) complete(wc *ibv.WC) {
	work, _, number := hop.WorkOf(wc.WRID)
	c.half.Polled(work)
	if work == hop.WorkMarker {
		return
	}
	if wc.Status != ibv.IBV_WC_SUCCESS {
		if !c.stopped {
			c.handleError(wc)
		}
		return
	}
	switch {
	case work == hop.WorkRead: // also after Stop, because the bytes have arrived
		c.finishRead(number)
	case !c.alive():
	case work == hop.WorkFrame:
		c.out.Complete()
		c.completeParts()
	case work == hop.WorkRecv:
		if err := c.handleReceive(wc, number); err != nil {
			c.fail(c.wrap(err))
		}
	}
}

// handleReceive handles an incoming frame or credit and posts its receive again.
func (c *carrier) handleReceive(wc *ibv.WC, number uint32) error {
	imm, ok := hop.Imm(wc)
	if !ok {
		return fmt.Errorf("%d bytes arrived without an immediate", wc.ByteLen)
	}
	if hop.IsCredit(imm) {
		if wc.ByteLen != 0 {
			return fmt.Errorf("a credit has %d bytes", wc.ByteLen)
		}
		if err := c.out.HandleCredit(imm); err != nil {
			return err
		}
		c.completeParts()
		return c.half.PostReceive(number)
	}
	slot := c.half.Slot(number)
	if wc.ByteLen < hop.HeaderSize {
		return fmt.Errorf("a frame of %d bytes", wc.ByteLen)
	}
	h, err := hop.Decode((*[hop.HeaderSize]byte)(slot))
	if err != nil {
		return err
	}
	if err := h.Check(c.next, imm, c.ring.Size, wc.ByteLen, hop.Small); err != nil {
		return err
	}
	c.next++
	switch {
	case h.Kind == hop.Probe:
		err = c.handleProbe(&h)
	case h.Kind == hop.Grant && c.lane.Conn.Sending:
		err = c.handleGrant(&h, slot[hop.HeaderSize:])
	case h.Kind != hop.Grant && !c.lane.Conn.Sending:
		err = c.place(&h, imm, number)
	default:
		err = fmt.Errorf("a frame of kind %d belongs to the other direction", h.Kind)
	}
	if a := &c.arrivals[h.Seq%hop.Forth]; err != nil || !c.alive() || a.held && !a.done {
		return err
	}
	return c.half.PostReceive(number)
}

// handleProbe handles the peer's probe packet.
func (c *carrier) handleProbe(h *hop.Header) error {
	if h.Socket != [2]uint64{c.token} || h.Length != 0 || c.probeReceived {
		return fmt.Errorf("a validation packet of another lane")
	}
	c.probeReceived = true
	if !c.lane.Conn.Sending {
		c.arrivals[h.Seq%hop.Forth] = arrival{done: true}
		c.advance()
	}
	return nil
}

// fail takes the lane out of service.
func (c *carrier) fail(err error) {
	if c.broken == nil {
		c.broken = err
	}
	c.lane.Break(err)
}

// handleError handles a completion in error. An access error of this side's adapter on user memory ends the
// connection, because the adapter would refuse the request on any lane; any other error breaks this lane.
func (c *carrier) handleError(wc *ibv.WC) {
	kind, hint := error(fault.ErrLane), ""
	cause := wc.Err("the relay next to this node")
	switch wc.Status {
	case ibv.IBV_WC_RETRY_EXC_ERR:
		hint = "; the relay or the cable to it stopped answering"
	case ibv.IBV_WC_WR_FLUSH_ERR:
		cause = lane.Flushed{Cause: cause}
	case ibv.IBV_WC_LOC_PROT_ERR, ibv.IBV_WC_LOC_ACCESS_ERR:
		c.broken = fmt.Errorf("%w: %v: %v: %w", fault.ErrDevice, c.lane.Conn, c.lane, cause)
		c.lane.Conn.Owner.Fail(c.broken)
		return
	case ibv.IBV_WC_RNR_RETRY_EXC_ERR, ibv.IBV_WC_REM_ACCESS_ERR, ibv.IBV_WC_REM_INV_REQ_ERR, ibv.IBV_WC_REM_OP_ERR, ibv.IBV_WC_LOC_LEN_ERR:
	default:
		kind = fault.ErrDevice
	}
	c.fail(fmt.Errorf("%w: %v: %v: %w%s", kind, c.lane.Conn, c.lane, cause, hint))
}

// wrap returns err with the name of the lane that it broke.
func (c *carrier) wrap(err error) error {
	return fmt.Errorf("%w: %v: %v%v: %w", fault.ErrLane, c.lane.Conn, c.lane, c.lane.Route, err)
}
