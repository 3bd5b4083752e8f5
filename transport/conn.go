package transport

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/transport/control"
)

const (
	lingerTime = 2 * time.Second // how long queue pairs outlive a close, for a lost last ACK
	drainTime  = 2 * time.Second // how long a stopped queue pair may take to flush
	pollBatch  = 32              // completions taken at once
)

// conn is what both halves of a connection have in common.
type conn struct {
	t       *Transport
	s       *control.Session
	id      uint32
	sending bool
	inbox   chan handshake.Message // set-up messages for the goroutine that sets up

	// mu guards everything below. The data path takes it with TryLock; nothing
	// that waits holds it, but for the draining of a stopped connection.
	mu       sync.Mutex
	err      error // why the connection is over; nil while it is not
	closed   bool  // by its owner
	peerOver bool  // the peer needs no word about the end
	byeOnce  sync.Once
	bye      chan struct{} // closed when the peer's Bye, or its end, is known

	mem      *ibv.Memory
	wire     wire
	wireBase uintptr
	devs     []*device
	lanes    []*lane
	peerBase uint64
	peerKeys [maxDevices]uint32
	regions  map[*Region]struct{}
	active   int // requests outstanding

	half half
}

// half is what a completion means to a send or a receive half.
type half interface {
	part(l *lane, wc *ibv.WC)                  // a part was delivered
	received(l *lane, wc *ibv.WC)              // a part has arrived
	failed(l *lane, wc *ibv.WC, err error)     // a work request failed
	waiting() bool                             // completions are to be expected
	recycle(r *Request)                        // a request is free again
	abandon()                                  // every outstanding request is over
	counters() (bytes, messages, waits uint64) // for the log
}

func newConn(t *Transport, s *control.Session, id uint32, sending bool) *conn {
	return &conn{
		t: t, s: s, id: id, sending: sending,
		inbox: make(chan handshake.Message, 4), bye: make(chan struct{}),
		regions: map[*Region]struct{}{},
	}
}

// String names the connection by both nodes, sender first.
func (c *conn) String() string {
	from, to := c.t.name(), c.s.Peer().Hostname
	if !c.sending {
		from, to = to, from
	}
	return fmt.Sprintf("%s -> %s conn %d", from, to, c.id)
}

// deliver hands the connection a message of its peer. It does not block.
func (c *conn) deliver(m handshake.Message) {
	switch m := m.(type) {
	case *handshake.Bye:
		c.peerEnded(fmt.Errorf("%w: %v: %s closed the connection", ErrPeer, c, c.s.Peer().Hostname))
	case *handshake.Refuse:
		c.peerEnded(fmt.Errorf("%w: %v: %s says: %s", ErrPeer, c, c.s.Peer().Hostname, m.Text))
	default:
		select {
		case c.inbox <- m:
		default:
			c.fail(fmt.Errorf("%w: %v: more messages than the protocol has", ErrPeer, c))
		}
	}
}

// peerEnded notes that the peer is done with the connection. Requests that its
// last writes completed are still found done.
func (c *conn) peerEnded(err error) {
	c.mu.Lock()
	c.peerOver = true
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.byeOnce.Do(func() { close(c.bye) })
}

// fail ends the connection and tells the peer why.
func (c *conn) fail(err error) {
	c.mu.Lock()
	c.failLocked(err)
	c.mu.Unlock()
}

func (c *conn) failLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	if !c.peerOver {
		c.peerOver = true
		_ = c.s.Send(&handshake.Refuse{Conn: c.id, Text: clip(err.Error(), 500)}) // a dead session is what we report anyway
	}
}

// clip shortens text for the wire.
func clip(s string, n int) string {
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}

// asyncFailure handles an event that says a queue pair broke.
func (c *conn) asyncFailure(l *lane, event string) {
	c.fail(fmt.Errorf("%w: %v: %v: the queue pair failed: %s", ErrPeer, c, l, event))
}

// laneError turns a failed completion into an error that names both ends.
func (c *conn) laneError(l *lane, wc *ibv.WC) error {
	kind := ErrPeer
	hint := ""
	switch wc.Status {
	case ibv.IBV_WC_RETRY_EXC_ERR:
		hint = "; the peer or the cable stopped answering: check both ports and the cable between them"
	case ibv.IBV_WC_RNR_RETRY_EXC_ERR, ibv.IBV_WC_REM_ACCESS_ERR, ibv.IBV_WC_REM_INV_REQ_ERR, ibv.IBV_WC_REM_OP_ERR, ibv.IBV_WC_WR_FLUSH_ERR:
	default:
		kind = errors.New("local failure")
	}
	return fmt.Errorf("%w: %v: %v: %w%s", kind, c, l, &ibv.WCError{
		Status: wc.Status, StatusText: ibv.StatusString(wc.Status), VendorErr: wc.VendorErr, QPN: wc.QPNum, Peer: c.s.Peer().Hostname,
	}, hint)
}

// setUpDevices opens a connection's side of the devices: completion queues and
// the registration of the wire.
// ports lists them in the order of the device set; lanes says how many queue
// pairs each gets; writes is the work requests that the largest part takes.
func (c *conn) setUpDevices(ports []*port, lanes []int, writes []int) error {
	size := wireSize + len(ports)*(pollBatch*48+64)
	for i := range ports {
		size += lanes[i] * (writes[i]*(128+16) + recvBatch*32 + 3*64)
	}
	var err error
	if c.mem, err = ibv.Alloc(size); err != nil {
		return err
	}
	c.wire, c.wireBase = carveWire(c.mem)
	for i, p := range ports {
		d := &device{port: p, wc: ibv.Carve[ibv.WC](c.mem, pollBatch)}
		c.devs = append(c.devs, d)
		depth := 0
		if c.sending {
			depth = lanes[i] * (2*(window+writes[i]) + 2)
		} else {
			depth = lanes[i] * (sendSlack + recvDepth + 2)
		}
		if depth > p.maxCQE {
			return fmt.Errorf("%s: %d queue pairs need a completion queue of %d entries and the device has %d; lower NCCL_IB_QPS_PER_CONNECTION", p.String(), lanes[i], depth, p.maxCQE)
		}
		if d.cq, err = p.ctx.CreateCQ(depth, nil); err != nil {
			return err
		}
		if d.wire, err = p.pd.RegMR(c.wireBase, wireSize, ibv.IBV_ACCESS_LOCAL_WRITE|ibv.IBV_ACCESS_REMOTE_WRITE); err != nil {
			return err
		}
	}
	return nil
}

// carveLane gives a lane its work requests; writes is those of the largest part.
func (c *conn) carveLane(l *lane, writes int) {
	l.wr = ibv.Carve[ibv.SendWR](c.mem, writes)
	l.sge = ibv.Carve[ibv.SGE](c.mem, writes)
	if !c.sending {
		l.recv = ibv.Carve[ibv.RecvWR](c.mem, recvBatch)
	}
}

// poll takes completions from every device that may have some.
//
// Preconditions: c.mu is held.
func (c *conn) poll() {
	receiving := c.half != nil && c.half.waiting()
	for _, d := range c.devs {
		if d.sends > 0 || receiving {
			c.pollDevice(d)
		}
	}
}

func (c *conn) pollDevice(d *device) {
	for {
		n, err := d.cq.Poll(d.wc)
		if err != nil {
			c.failLocked(fmt.Errorf("%v: %s: %w", c, d.port.String(), err))
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
	if index >= len(c.lanes) || c.lanes[index].qp.Num() != wc.QPNum {
		c.failLocked(fmt.Errorf("%w: %v: completion of unknown work request %#x on queue pair %d", ErrInternal, c, wc.WRID, wc.QPNum))
		return
	}
	l := c.lanes[index]
	ok := wc.Status == ibv.IBV_WC_SUCCESS
	credits := int(uint16(wc.WRID >> 16))
	switch kind {
	case wrPart, wrGrant, wrProof:
		if credits > 0 { // only signalled requests carry credits
			d.sends--
			l.credits += credits
		}
	case wrRecv:
		l.posted--
	case wrMarker:
		l.marks++
		return
	}
	switch {
	case !ok && kind == wrProof:
		l.proof = proofFailed
		l.reason = c.laneError(l, wc).Error()
	case !ok && !l.up: // already out of service
	case !ok:
		c.half.failed(l, wc, c.laneError(l, wc))
	case kind == wrProof:
		l.proof = proofDone
	case kind == wrPart:
		c.half.part(l, wc)
	case kind == wrRecv:
		c.half.received(l, wc)
	}
}

// quiesce stops all queue pairs and waits until they have flushed: afterwards no
// device touches a buffer of the connection's requests.
//
// Preconditions: c.mu is held and c.err is set.
func (c *conn) quiesce() {
	var errs []error
	for _, l := range c.lanes {
		if !l.up && l.marked > 0 {
			continue
		}
		if err := l.stop(); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := l.postMarkers(); err != nil {
			errs = append(errs, err)
		}
	}
	deadline := time.Now().Add(c.t.opts.scaled(drainTime))
	for wait := 10 * time.Microsecond; ; wait = min(2*wait, time.Millisecond) {
		left := 0
		for _, d := range c.devs {
			c.pollDevice(d)
		}
		for _, l := range c.lanes {
			left += l.marked - l.marks
		}
		if left == 0 && len(errs) == 0 {
			break
		}
		if len(errs) > 0 || time.Now().After(deadline) {
			// Destroying a queue pair also ends all access through it.
			for _, l := range c.lanes {
				errs = append(errs, l.close())
				l.marks = l.marked
			}
			c.t.log.Debug("queue pairs did not drain and were destroyed", "conn", c.String(), "err", errors.Join(errs...))
			break
		}
		time.Sleep(wait)
	}
	c.half.abandon()
}

// Close ends the connection from this side. Outstanding requests are abandoned,
// memory still registered is released. Queue pairs linger in the background
// until the peer closes too.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.poll()
	clean := c.active == 0
	if !clean {
		if c.err == nil {
			c.err = fmt.Errorf("%w: %v: closed with %d requests outstanding", ErrUsage, c, c.active)
		}
		c.quiesce()
	}
	var errs []error
	for r := range c.regions {
		errs = append(errs, c.drop(r))
	}
	clear(c.regions)
	over := c.peerOver
	c.peerOver = true
	c.mu.Unlock()
	_ = c.s.Send(&handshake.Bye{Conn: c.id}) // a dead session needs none
	c.logCounters()
	c.t.background(func() {
		if clean && !over {
			wait := time.NewTimer(c.t.opts.scaled(lingerTime))
			defer wait.Stop()
			select {
			case <-c.bye:
			case <-wait.C:
			case <-c.t.closing:
			}
		}
		if err := c.destroy(); err != nil {
			c.t.log.Warn("closing a connection left something behind", "conn", c.String(), "err", err)
		}
	})
	return errors.Join(errs...)
}

// destroy gives back all verbs objects and memory.
func (c *conn) destroy() error {
	c.t.forget(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, l := range c.lanes {
		errs = append(errs, l.close())
	}
	for _, d := range c.devs {
		if d.cq != nil {
			errs = append(errs, d.cq.Close())
		}
		if d.wire != nil {
			errs = append(errs, d.wire.Close())
		}
	}
	c.lanes, c.devs = nil, nil
	if c.mem != nil {
		errs = append(errs, c.mem.Free())
		c.mem = nil
	}
	return errors.Join(errs...)
}

// logCounters writes the connection's line of figures.
func (c *conn) logCounters() {
	bytes, messages, waits := c.half.counters()
	c.t.log.Info(fmt.Sprintf("%v: closed after %d messages, %d bytes, %d grants waited for", c, messages, bytes, waits))
	for _, l := range c.lanes {
		c.t.log.Debug(fmt.Sprintf("%v: %v: %d parts, %d bytes", c, l, l.messages, l.bytes))
	}
}
