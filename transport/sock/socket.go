package sock

import (
	"net"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/forkfd"
)

// socket owns a descriptor in Go's poller, which is marked while it is open.
type socket struct {
	f      *os.File
	closed atomic.Bool
}

// open opens a socket that does not block. The name is that of its file.
func open(family, kind, protocol int, name string) (*socket, error) {
	var fd int
	var err error
	forkfd.Do(func() {
		if fd, err = unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol); err == nil {
			forkfd.Mark(fd)
		}
	})
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	return newSocket(fd, name), nil
}

// newSocket takes over a marked descriptor that does not block.
func newSocket(fd int, name string) *socket {
	return &socket{f: os.NewFile(uintptr(fd), name)}
}

// Close gives the descriptor back, and ends calls that wait for it. It may be called again.
func (s *socket) Close() (err error) {
	if !s.closed.CompareAndSwap(false, true) {
		return net.ErrClosed
	}
	forkfd.Do(func() {
		_ = s.control(func(fd int) error { forkfd.Clear(fd); return nil })
		err = s.f.Close()
	})
	return err
}

// control calls f with the descriptor, and returns its error.
func (s *socket) control(f func(fd int) error) error {
	var failed error
	rc, err := s.f.SyscallConn()
	if err == nil {
		err = rc.Control(func(fd uintptr) { failed = f(int(fd)) })
	}
	if err != nil { // only the call of a closed file fails
		return net.ErrClosed
	}
	return failed
}

// whenReadable calls f until its error is not EAGAIN, and waits for something to read before each further call.
func (s *socket) whenReadable(f func(fd int) error) error {
	var failed error
	rc, err := s.f.SyscallConn()
	if err == nil {
		err = rc.Read(func(fd uintptr) bool {
			failed = f(int(fd))
			return failed != unix.EAGAIN
		})
	}
	return s.ended(err, failed)
}

// whenWritable is [socket.whenReadable] for room to write.
func (s *socket) whenWritable(f func(fd int) error) error {
	var failed error
	rc, err := s.f.SyscallConn()
	if err == nil {
		err = rc.Write(func(fd uintptr) bool {
			failed = f(int(fd))
			return failed != unix.EAGAIN
		})
	}
	return s.ended(err, failed)
}

// ended returns why a wait has ended: the error of the poller, else that of the call.
func (s *socket) ended(err, failed error) error {
	switch {
	case err != nil && s.closed.Load():
		return net.ErrClosed
	case err != nil:
		return err // os.ErrDeadlineExceeded
	}
	return failed
}
