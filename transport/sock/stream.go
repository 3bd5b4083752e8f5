package sock

import (
	"os"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/forkfd"
)

// A Stream sends and receives without waiting, from and into memory outside the Go heap. One goroutine uses it at a time. A
// call that can do nothing now returns EAGAIN; Receive returns 0 bytes and no error at the end of the stream.
type Stream struct {
	fd    int         // -1 of a model's, and once closed
	model StreamModel // nil: the kernel's
}

// StreamModel is a stream of a simulated network. Its methods do what those of [Stream] do.
type StreamModel interface {
	Send(addr uintptr, n int) (int, unix.Errno)
	Receive(addr uintptr, n int) (int, unix.Errno)
	SendMessage(m *Message, n int) (int, unix.Errno)
	ReceiveMessage(m *Message, n int) (int, unix.Errno)
	Unsent() int
	Info() (Info, error)
	Number() int
	Close() error
}

// Simulated returns the stream that a model carries.
func Simulated(m StreamModel) *Stream { return &Stream{fd: -1, model: m} }

// None is a stream that is closed: every call fails with EBADF, but Close, which does nothing.
var None = &Stream{fd: -1}

// Send sends up to n bytes at addr, and returns how many the network has taken.
//
// Preconditions: addr lies outside the Go heap.
func (s *Stream) Send(addr uintptr, n int) (int, unix.Errno) {
	if s.model != nil {
		return s.model.Send(addr, n)
	}
	return call(n, unix.SYS_SENDTO, uintptr(s.fd), addr, uintptr(n), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

// Receive receives up to n bytes to addr.
//
// Preconditions: addr lies outside the Go heap.
func (s *Stream) Receive(addr uintptr, n int) (int, unix.Errno) {
	if s.model != nil {
		return s.model.Receive(addr, n)
	}
	return call(n, unix.SYS_RECVFROM, uintptr(s.fd), addr, uintptr(n), unix.MSG_DONTWAIT)
}

// SendMessage sends what a message points to, n bytes, and returns how many the network has taken.
//
// Preconditions: m and its vectors lie outside the Go heap.
func (s *Stream) SendMessage(m *Message, n int) (int, unix.Errno) {
	if s.model != nil {
		return s.model.SendMessage(m, n)
	}
	return call(n, unix.SYS_SENDMSG, uintptr(s.fd), m.addr(), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0)
}

// ReceiveMessage receives up to n bytes to where a message points.
//
// Preconditions: m and its vectors lie outside the Go heap.
func (s *Stream) ReceiveMessage(m *Message, n int) (int, unix.Errno) {
	if s.model != nil {
		return s.model.ReceiveMessage(m, n)
	}
	return call(n, unix.SYS_RECVMSG, uintptr(s.fd), m.addr(), unix.MSG_DONTWAIT, 0)
}

// Unsent is the number of bytes that the network has taken and the other end has not acknowledged; 0 of a stream that broke.
func (s *Stream) Unsent() int {
	if s.model != nil {
		return s.model.Unsent()
	}
	n, err := unix.IoctlGetInt(s.fd, unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}

// Info says how far the other end has acknowledged.
func (s *Stream) Info() (Info, error) {
	if s.model != nil {
		return s.model.Info()
	}
	return infoOf(s.fd)
}

// Number is the descriptor, or what a model has in its place; below 0 of a stream that is closed.
func (s *Stream) Number() int {
	if s.model != nil {
		return s.model.Number()
	}
	return s.fd
}

// Close gives the stream back; what the network has taken still goes out. It may be called again.
func (s *Stream) Close() (err error) {
	if s.model != nil {
		return s.model.Close()
	}
	if s.fd < 0 {
		return nil
	}
	err = os.NewSyscallError("close", forkfd.CloseFD(s.fd))
	s.fd = -1
	return err
}
