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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	var last error
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		fd, err := e.try(ctx, end, to)
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

// try makes one attempt.
func (e *Endpoint) try(ctx context.Context, end End, to netip.AddrPort) (_ int, err error) {
	f, err := connect(ctx, end, to)
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
	hello, err := handshake.LaneHello(end.Key, end.Name, end.Tokens)
	if err != nil {
		return -1, err
	}
	if _, err := f.Write(hello[:]); err != nil {
		return -1, err
	}
	var welcome [handshake.LaneWelcomeSize]byte
	if _, err := io.ReadFull(f, welcome[:]); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return -1, fmt.Errorf("connected to %v, which said nothing: %w", to, context.Cause(ctx))
		}
		return -1, fmt.Errorf("%v did not take the lane, as when its port is crowded; its log says why: %w", to, err)
	}
	if err := handshake.CheckLaneWelcome(end.Key, welcome, hello, end.Tokens); err != nil {
		return -1, fmt.Errorf("%v is not the peer: %w", to, err)
	}
	return e.detach(f)
}
