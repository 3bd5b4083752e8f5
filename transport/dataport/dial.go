package dataport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/handshake"
	"ncclmesh/transport/forkfd"
	"ncclmesh/transport/limit"
)

const (
	minPause = 10 * time.Millisecond // between two attempts, before TimeScale, doubled up to
	maxPause = 200 * time.Millisecond
)

// Dial connects a lane to its other side, which listens at to, and returns its
// descriptor. Attempts are repeated until the context ends, except when the
// other side is there and is the wrong one.
func (e *Endpoint) Dial(ctx context.Context, end End, to netip.AddrPort) (fd int, err error) {
	return e.again(ctx, func(ctx context.Context) (int, error) { return e.try(ctx, end, to) })
}

// DialThrough connects a lane through a circuit: hop is that of its first hop, to a
// relay which listens at to, and says where this side is. A relay takes a hop
// once, so that only that is tried again.
func (e *Endpoint) DialThrough(ctx context.Context, hop End, to netip.AddrPort, end End) (fd int, err error) {
	return e.again(ctx, func(ctx context.Context) (int, error) { return e.try(ctx, hop, to, end) })
}

// DialHop connects to where a circuit's last hop leads, and says nothing there: the
// two sides of the lane prove themselves to each other.
func (e *Endpoint) DialHop(ctx context.Context, addr netip.Addr, netdev string, to netip.AddrPort) (fd int, err error) {
	return e.again(ctx, func(ctx context.Context) (int, error) { return e.try(ctx, End{Addr: addr, Netdev: netdev}, to) })
}

// again repeats an attempt while that may do better, until the context ends.
func (e *Endpoint) again(ctx context.Context, try func(context.Context) (int, error)) (fd int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	var last error
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		fd, err := try(ctx)
		err = limit.Own(err)
		if err == nil {
			e.mu.Lock()
			e.stats.Dialled++
			e.mu.Unlock()
			return fd, nil
		}
		if last == nil || ctx.Err() == nil {
			last = err // the end of the context explains less than what was before
		}
		if !temporary(err) {
			return -1, last
		}
		timer := time.NewTimer(e.scaled(pause))
		select {
		case <-ctx.Done():
			timer.Stop()
			if e.ctx.Err() != nil {
				return -1, net.ErrClosed
			}
			return -1, last
		case <-timer.C:
		}
	}
}

// beyond is an error of what lies behind a hop that stood.
type beyond struct{ error }

// temporary reports whether another attempt may do better: the other side closed
// before it answered, or has not begun to listen; or this node has what it lacks.
func temporary(err error) bool {
	if limit.IsOwn(err) {
		return true
	}
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, unix.ECONNRESET, unix.EPIPE, unix.ECONNREFUSED, unix.EADDRNOTAVAIL, unix.EAGAIN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// try makes one attempt: it connects from where the first end is, and proves itself
// to the other side of each that has a name, one behind the other.
func (e *Endpoint) try(ctx context.Context, end End, to netip.AddrPort, behind ...End) (_ int, err error) {
	f, err := e.connect(ctx, end, to)
	if err != nil {
		return -1, err
	}
	defer func() { _ = forkfd.Close(f) }()
	if end.Reached != nil {
		end.Reached(true)
		defer func() {
			if err != nil {
				end.Reached(false)
			}
		}()
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if end.Name != (handshake.LaneName{}) {
		if err := prove(ctx, f, end, to.String()); err != nil {
			return -1, err
		}
	}
	for _, b := range behind {
		if err := prove(ctx, f, b, fmt.Sprintf("the lane's other end behind %v", to)); err != nil {
			return -1, beyond{err}
		}
	}
	return e.detach(f)
}

// prove is the dialler's side of the proof.
func prove(ctx context.Context, f *os.File, end End, who string) error {
	hello, err := handshake.LaneHello(end.Key, end.Name, end.Tokens)
	if err != nil {
		return err
	}
	if _, err := f.Write(hello[:]); err != nil {
		return err
	}
	var welcome [handshake.LaneWelcomeSize]byte
	if _, err := io.ReadFull(f, welcome[:]); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("connected to %v, which did not answer: %w", who, context.Cause(ctx))
		}
		return fmt.Errorf("%v did not accept the lane, as when it has too many connections; its log says why: %w", who, err)
	}
	if err := handshake.CheckLaneWelcome(end.Key, welcome, hello, end.Tokens); err != nil {
		return fmt.Errorf("%v is not the peer: %w", who, err)
	}
	return nil
}
