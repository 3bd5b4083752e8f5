package onesided

import (
	"fmt"

	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
)

// here returns a window of this process, for operations of the process on itself.
func (p *Peer) here(id uint32) (*Window, error) {
	w := (*p.space.windows.Load())[id]
	switch {
	case w != nil && !w.closing.Load():
		return w, nil
	case id > 0 && id <= p.space.last.Load():
		return nil, fmt.Errorf("%w: window %d of this process", conn.ErrWindowGone, id)
	}
	return nil, fmt.Errorf("%w: this process has no window %d", fault.ErrUsage, id)
}

// putHere is put within the process.
func (p *Peer) putHere(dst uint32, dstOff uint64, src *Window, srcOff, size uint64, s *Signal) (Op, error) {
	var to, about *Window
	var err error
	if src != nil {
		if err = p.checkSource(src, srcOff, size); err == nil {
			to, err = p.here(dst)
		}
		if err == nil {
			err = checkRange(to.id, to.size, dstOff, size)
		}
	}
	if s != nil && err == nil {
		if about, err = p.here(s.Window); err == nil {
			err = s.check(about.size, &conn.RemoteWindow{ID: about.id, Kind: about.kind})
		}
	}
	if err != nil {
		return 0, err
	}
	if p.full() { // of operations that wait for copies
		return 0, nil
	}
	if byCopier(to, src, about) {
		return p.copyHere(to, dstOff, src, srcOff, size, about, s)
	}
	if src != nil {
		copyMemory(to.base+uintptr(dstOff), src.base+uintptr(srcOff), size)
	}
	if s == nil {
		return p.doneHere(), nil
	}
	if p.oldest < p.next { // copies before it, and signals behind those, are not done
		return p.beginHere(nil, about, s), nil
	}
	about.change(s.Do, s.Offset, s.Value)
	return p.doneHere(), nil
}

// getHere is Get within the process.
func (p *Peer) getHere(src uint32, srcOff uint64, dst *Window, dstOff, size uint64) (Op, error) {
	if err := p.checkSource(dst, dstOff, size); err != nil {
		return 0, err
	}
	from, err := p.here(src)
	if err == nil {
		err = checkRange(from.id, from.size, srcOff, size)
	}
	if err != nil {
		return 0, err
	}
	if p.full() {
		return 0, nil
	}
	if byCopier(dst, from, nil) {
		return p.copyHere(dst, dstOff, from, srcOff, size, nil, nil)
	}
	copyMemory(dst.base+uintptr(dstOff), from.base+uintptr(srcOff), size)
	return p.doneHere(), nil
}

// doneHere returns an operation that is done.
//
// Preconditions: p is not full.
func (p *Peer) doneHere() Op {
	o := p.begin(nil)
	p.finish(o)
	p.advance()
	return Op(o.number)
}
