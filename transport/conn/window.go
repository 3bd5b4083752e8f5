package conn

import (
	"fmt"
	"maps"
	"slices"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// maxWindows is the most windows of a connection that are open at a time.
const maxWindows = 4096

// Window is memory of a receiver's process into which the sender puts bytes at any time, without a grant. See put.go.
type Window struct {
	r        *Receiver
	id       uint32
	region   *lane.Region
	state    windowState // guarded by the connection's mutex, as is arriving
	arriving int         // parts that carriers are placing in it
}

// windowState is the phase of a window's life.
//
//	            End               the sender agrees
//	windowOpen ─────► windowEnding ─────────────────► windowEnded
type windowState uint8

const (
	windowOpen   windowState = 0 // the sender may put bytes into it
	windowEnding windowState = 1 // the sender was told to begin no more puts
	windowEnded  windowState = 2 // no put can reach it
)

// windows are the windows of a receiver. The zero value has none.
type windows struct {
	last uint32             // number of the last window that was opened
	byID map[uint32]*Window // those that have not ended
	gpu  int                // those in GPU memory
}

// OpenWindow lets the sender put bytes into a region at any time. id is the window's number, above those of all windows
// of the connection so far. The region must not be deregistered before the window has ended, or the connection fails,
// as for a region that requests use.
func (r *Receiver) OpenWindow(id uint32, g *lane.Region) (*Window, error) {
	r.Lock()
	defer r.Unlock()
	switch err := r.checkUsable("open a window"); {
	case err != nil:
		return nil, err
	case !r.hasRegion(g):
		return nil, fmt.Errorf("%w: %v: window %d: its memory is not registered with the connection", fault.ErrUsage, r, id)
	case id <= r.windows.last || id > lane.MaxWindow:
		return nil, fmt.Errorf("%w: %v: window %d: numbers from %d to %d are free", fault.ErrUsage, r, id, r.windows.last+1, lane.MaxWindow)
	case len(r.windows.byID) == maxWindows:
		return nil, fmt.Errorf("%w: %v: window %d: %d windows are open, and more are not allowed; close some", fault.ErrUsage, r, id, maxWindows)
	}
	w := &Window{r: r, id: id, region: g}
	if r.windows.byID == nil {
		r.windows.byID = map[uint32]*Window{}
	}
	r.windows.last, r.windows.byID[id] = id, w
	if g.Kind == lane.GPUMemory {
		r.windows.gpu++
	}
	g.InUse++
	r.announce(w)
	return w, nil
}

// announce tells the sender of a window and its keys.
//
// Preconditions: r is locked.
func (r *Receiver) announce(w *Window) {
	g := w.region
	m := &handshake.Window{Conn: r.ID, ID: w.id, Kind: uint8(g.Kind), Base: uint64(g.Addr), Size: uint64(g.Length)}
	m.RKeys = append(m.RKeys, g.RKeys[:len(r.domains)]...)
	r.sendOrFail(m)
}

// announceKeys tells the sender of the keys that all windows have in a domain that has joined.
//
// Preconditions: r is locked.
func (r *Receiver) announceKeys() {
	for _, id := range slices.Sorted(maps.Keys(r.windows.byID)) {
		if w := r.windows.byID[id]; w.state == windowOpen {
			r.announce(w)
		}
	}
}

// End begins to end the window: the sender is told to begin no more puts.
func (w *Window) End() {
	w.r.Lock()
	defer w.r.Unlock()
	if w.state == windowOpen {
		w.state = windowEnding
		w.r.sendOrFail(&handshake.WindowEnd{Conn: w.r.ID, ID: w.id})
	}
}

// Ended reports whether no put can reach the window any more, because the sender has agreed to its end. If the
// connection has ended it may never become true; deregistering the region then stops the lanes.
func (w *Window) Ended() bool {
	if !w.r.TryLock() {
		return false
	}
	defer w.r.Unlock()
	return w.state == windowEnded
}

// endWindow notes that no put can reach a window any more.
//
// Preconditions: r is locked.
func (r *Receiver) endWindow(w *Window) {
	w.state = windowEnded
	w.region.InUse--
	if w.region.Kind == lane.GPUMemory {
		r.windows.gpu--
	}
	delete(r.windows.byID, w.id)
}

// windowEndAgreed handles the sender's agreement to the end of a window.
//
// Preconditions: r is locked.
func (r *Receiver) windowEndAgreed(m *handshake.WindowEnd) {
	w := r.windows.byID[m.ID]
	if w == nil || w.state != windowEnding || w.arriving > 0 {
		r.Fail(fmt.Errorf("%w: %v: the sender agrees to the end of window %d, which does not end", fault.ErrProtocol, r, m.ID))
		return
	}
	r.endWindow(w)
}

// placePut is Place for a part of a put.
func (r incoming) placePut(l *lane.Lane, id uint32, offset uint64, size uint32) (addr uintptr, g *lane.Region, ok bool) {
	w := r.windows.byID[id]
	switch {
	case w == nil && id > 0 && id <= r.windows.last:
		r.Fail(r.explainWithdrawn(fmt.Errorf("%w: %v: %v: a put of %d bytes into window %d, which has ended", fault.ErrProtocol, r, l, size, id)))
		return 0, nil, false
	case w == nil:
		r.Fail(fmt.Errorf("%w: %v: %v: a put of %d bytes into window %d; windows up to %d were opened", fault.ErrProtocol, r, l, size, id, r.windows.last))
		return 0, nil, false
	case offset > uint64(w.region.Length) || uint64(size) > uint64(w.region.Length)-offset:
		r.Fail(fmt.Errorf("%w: %v: %v: a put of %d bytes at %d into window %d, which has %d bytes", fault.ErrProtocol, r, l, size, offset, id, w.region.Length))
		return 0, nil, false
	}
	w.arriving++
	return w.region.Addr + uintptr(offset), w.region, true
}

// putEnded notes that a part of a put has arrived, or will not.
func (r incoming) putEnded(l *lane.Lane, id uint32) {
	w := r.windows.byID[id]
	if w == nil || w.arriving == 0 {
		r.Fail(fmt.Errorf("%w: %v: %v: the end of a put into window %d that has not begun", fault.ErrProtocol, r, l, id))
		return
	}
	w.arriving--
}

// putArrived handles the arrival of a part of a put over a carrier that placed it.
func (r incoming) putArrived(l *lane.Lane, id uint32, size int64) {
	l.Parts.Add(1)
	l.Bytes.Add(uint64(size))
	r.Count.Bytes.Add(uint64(size))
	r.putEnded(l, id)
}

// putsInProgress reports whether a part of a put into g is being placed.
//
// Preconditions: r is locked.
func (r *Receiver) putsInProgress(g *lane.Region) bool {
	for _, w := range r.windows.byID {
		if w.region == g && w.arriving > 0 {
			return true
		}
	}
	return false
}

// withdrawWindows ends the windows in g, whose memory was deregistered. The connection fails if data comes for one of
// them.
//
// Preconditions: r is locked.
func (r *Receiver) withdrawWindows(g *lane.Region) {
	for _, w := range r.windows.byID {
		if w.region == g {
			r.endWindow(w)
		}
	}
}

// handleWindow handles the peer's word of a window: that it is open, or that it ends.
//
// Preconditions: c is locked.
func (c *Conn) handleWindow(m *handshake.Window, end *handshake.WindowEnd) {
	switch {
	case m != nil && c.Sending:
		c.sender.windowAnnounced(m)
	case m != nil:
		c.Fail(fmt.Errorf("%w: %v: the receiver was sent a Window, which is for senders", fault.ErrProtocol, c))
	case c.Sending:
		c.sender.windowEnds(end)
	default:
		c.receiver.windowEndAgreed(end)
	}
}
