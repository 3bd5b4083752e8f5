package hop

import (
	"encoding/binary"
	"errors"

	"ncclmesh/ibv"
)

// Work is the kind of a work request. The ID of a work request is: kind 8 | tag 24 | number 32.
type Work uint8

const (
	WorkFrame  Work = 1 // a frame that was sent or written
	WorkCredit Work = 2
	WorkRead   Work = 3 // the number is that of the frame
	WorkRecv   Work = 4 // the number is that of the receive
	WorkMarker Work = 5
)

// WorkOf returns the parts of a work request's ID.
func WorkOf(wrid uint64) (w Work, tag, number uint32) {
	return Work(wrid >> 56), uint32(wrid>>32) & (1<<24 - 1), uint32(wrid)
}

// Reads is the maximum number of READs that a receiver has in flight.
const Reads = 16

// sends is the length of a send queue: frames, a credit, READs and the marker.
const sends = Back + 1 + Reads + 1

// Endpoint is this process's end of a hop: a queue pair, its receives and its credit. The caller holds the lock that
// guards it.
type Endpoint struct {
	*ibv.QP
	tag          uint32
	posted       int  // receives that were posted and not polled
	markerPosted bool // the marker was posted
	markerDone   bool // the marker was flushed
	credit       bool // a credit is in flight

	freed, delivered uint64 // counts in the last credit

	mem  *ibv.Memory
	wr   []ibv.SendWR
	sge  []ibv.SGE // two for a send, one for a receive
	recv []ibv.RecvWR

	slots    []byte // memory of the receives; nil: they have none
	slotSize int
	slotKey  uint32
}

// Completions returns the maximum number of completions of an endpoint with that many receives.
func Completions(receives int) int { return receives + sends }

// NewEndpoint makes an endpoint in RESET with that many receives. The IDs of its work requests contain tag.
func NewEndpoint(pd *ibv.PD, cq *ibv.CQ, receives int, tag uint32) (h *Endpoint, err error) {
	h = &Endpoint{tag: tag}
	if h.mem, err = ibv.Alloc(1024); err != nil {
		return nil, err
	}
	h.wr, h.sge, h.recv = ibv.Carve[ibv.SendWR](h.mem, 1), ibv.Carve[ibv.SGE](h.mem, 3), ibv.Carve[ibv.RecvWR](h.mem, 1)
	h.QP, err = pd.CreateQP(ibv.QPInit{
		SendCQ: cq, RecvCQ: cq, MaxSendWR: sends, MaxRecvWR: uint32(receives),
		MaxSendSGE: 2, MaxRecvSGE: 1, Type: ibv.IBV_QPT_RC,
	})
	if err != nil {
		return nil, errors.Join(err, h.mem.Free())
	}
	return h, nil
}

// SetReceiveMemory sets the memory of the receives, size bytes each.
func (e *Endpoint) SetReceiveMemory(slots []byte, size int, lkey uint32) {
	e.slots, e.slotSize, e.slotKey = slots, size, lkey
}

// Slot returns the memory of a receive.
func (e *Endpoint) Slot(number uint32) []byte {
	at := int(number) * e.slotSize
	return e.slots[at : at+e.slotSize]
}

// PostReceive posts a receive.
func (e *Endpoint) PostReceive(number uint32) error {
	w := &e.recv[0]
	*w = ibv.RecvWR{WRID: e.id(WorkRecv, number)}
	if e.slots != nil {
		e.sge[2] = ibv.SGE{Addr: uint64(ibv.AddrOf(&e.Slot(number)[0])), Length: uint32(e.slotSize), LKey: e.slotKey}
		w.SGList, w.NumSGE = ibv.AddrOf(&e.sge[2]), 1
	}
	if _, err := e.PostRecv(w); err != nil {
		return err
	}
	e.posted++
	return nil
}

// PostReceives posts the receives 0 to n-1.
func (e *Endpoint) PostReceives(n int) error {
	for i := range n {
		if err := e.PostReceive(uint32(i)); err != nil {
			return err
		}
	}
	return nil
}

func (e *Endpoint) id(w Work, number uint32) uint64 {
	return uint64(w)<<56 | uint64(e.tag)<<32 | uint64(number)
}

// Piece is a piece of memory that is part of a frame.
type Piece struct {
	Addr   uintptr
	Length int
	Key    uint32
}

// Frame sends a frame that consists of the pieces a and b, or writes it to a place of the window's ring. b may be
// empty. imm is the immediate if the reader has no ring.
func (e *Endpoint) Frame(w *Window, place, imm uint32, a, b Piece) error {
	r := &e.wr[0]
	e.sge[0] = ibv.SGE{Addr: uint64(a.Addr), Length: uint32(a.Length), LKey: a.Key}
	*r = ibv.SendWR{
		WRID: e.id(WorkFrame, 0), SGList: ibv.AddrOf(&e.sge[0]), NumSGE: 1,
		Opcode: ibv.IBV_WR_SEND_WITH_IMM, SendFlags: ibv.IBV_SEND_SIGNALED, Imm: networkOrder(imm),
	}
	if b.Length > 0 {
		e.sge[1] = ibv.SGE{Addr: uint64(b.Addr), Length: uint32(b.Length), LKey: b.Key}
		r.NumSGE = 2
	}
	if w.Ring.Size > 0 {
		r.Opcode, r.Imm = ibv.IBV_WR_RDMA_WRITE_WITH_IMM, networkOrder(place)
		r.RemoteAddr, r.RKey = w.Ring.Base+uint64(place)*Unit, w.Ring.Key
	}
	_, err := e.PostSend(r)
	return err
}

// Read reads from an address of the peer into memory.
func (e *Endpoint) Read(number uint32, to Piece, from uint64, key uint32) error {
	r := &e.wr[0]
	e.sge[0] = ibv.SGE{Addr: uint64(to.Addr), Length: uint32(to.Length), LKey: to.Key}
	*r = ibv.SendWR{
		WRID: e.id(WorkRead, number), SGList: ibv.AddrOf(&e.sge[0]), NumSGE: 1,
		Opcode: ibv.IBV_WR_RDMA_READ, SendFlags: ibv.IBV_SEND_SIGNALED, RemoteAddr: from, RKey: key,
	}
	_, err := e.PostSend(r)
	return err
}

// SendCredit sends a credit if one of the counts has grown by at least every since the last credit, or delivered for
// the first time, unless a credit is in flight.
func (e *Endpoint) SendCredit(freed, delivered, every uint64) error {
	due := freed-e.freed >= every || delivered-e.delivered >= every || e.delivered == 0 && delivered > 0
	if e.credit || !due || e.CreditSent(freed, delivered) {
		return nil
	}
	r := &e.wr[0]
	*r = ibv.SendWR{WRID: e.id(WorkCredit, 0), Opcode: ibv.IBV_WR_SEND_WITH_IMM, SendFlags: ibv.IBV_SEND_SIGNALED, Imm: networkOrder(Credit(freed, delivered))}
	if _, err := e.PostSend(r); err != nil {
		return err
	}
	e.credit, e.freed, e.delivered = true, freed, delivered
	return nil
}

// CreditSent reports whether the peer's adapter has acknowledged a credit with these counts.
func (e *Endpoint) CreditSent(freed, delivered uint64) bool {
	return !e.credit && e.freed == freed && e.delivered == delivered
}

// Polled records a completion, successful or not.
func (e *Endpoint) Polled(w Work) {
	switch w {
	case WorkRecv:
		e.posted--
	case WorkCredit:
		e.credit = false
	case WorkMarker:
		e.markerDone = true
	}
}

// Stop moves the queue pair to ERR: the adapter then sends and accepts nothing more, and flushes what was posted. A
// marker request shows when the send queue has been flushed. Receives are counted, and none may be posted from then on.
func (e *Endpoint) Stop() error {
	if e.markerPosted {
		return nil
	}
	if err := e.Modify(&ibv.QPAttr{QPState: ibv.IBV_QPS_ERR}, ibv.IBV_QP_STATE); err != nil {
		return err
	}
	e.wr[0] = ibv.SendWR{WRID: e.id(WorkMarker, 0), Opcode: ibv.IBV_WR_SEND, SendFlags: ibv.IBV_SEND_SIGNALED}
	if _, err := e.PostSend(&e.wr[0]); err != nil {
		return err
	}
	e.markerPosted = true
	return nil
}

// Drained reports whether everything that was posted has been polled since Stop.
func (e *Endpoint) Drained() bool { return e.markerDone && e.posted == 0 }

// Close destroys the queue pair. It may be called again after an error.
func (e *Endpoint) Close() error {
	if err := e.QP.Close(); err != nil {
		return err
	}
	return e.mem.Free()
}

// networkOrder converts between a number and the word that a work request or a completion stores, which contains the
// immediate's bytes in network order.
func networkOrder(v uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return binary.NativeEndian.Uint32(b[:])
}

// Imm returns the immediate of a completion. ok reports whether it has one.
func Imm(wc *ibv.WC) (imm uint32, ok bool) {
	return networkOrder(wc.Imm), wc.WCFlags&ibv.IBV_WC_WITH_IMM != 0
}
