package internet

import (
	"golang.org/x/sys/unix"

	"ncclmesh/transport/sock"
)

// A stream is a process's descriptor of an end, whose calls do not wait. It is guarded by the internet's mutex.
type stream struct {
	*end
	owner  *Process
	fd     int
	closed bool
}

var _ sock.StreamModel = (*stream)(nil)

// fractions is how often a stream takes less than there is room for.
const fractions = 1.0 / 16

// may returns the errno that a call is to fail with at once.
// Preconditions: n.mu is locked.
func (s *stream) may() unix.Errno {
	if s.closed || s.owner.dead {
		return unix.EBADF
	}
	return 0
}

func (s *stream) Send(addr uintptr, n int) (int, unix.Errno) {
	return s.SendVectors(n, sock.Vector{Base: addr, Length: uint64(n)})
}

func (s *stream) SendMessage(m *sock.Message, n int) (int, unix.Errno) {
	return s.SendVectors(n, m.Vectors()...)
}

func (s *stream) Receive(addr uintptr, n int) (int, unix.Errno) {
	return s.ReceiveVectors(n, sock.Vector{Base: addr, Length: uint64(n)})
}

func (s *stream) ReceiveMessage(m *sock.Message, n int) (int, unix.Errno) {
	return s.ReceiveVectors(n, m.Vectors()...)
}

// SendVectors sends up to n bytes of what the vectors hold.
func (s *stream) SendVectors(n int, vectors ...sock.Vector) (sent int, _ unix.Errno) {
	s.net().mu.Lock()
	defer s.net().mu.Unlock()
	switch errno := s.may(); {
	case errno != 0:
		return -1, errno
	case s.errno != 0:
		return -1, s.takeError()
	case s.fin || s.state != stateOpen:
		return -1, unix.EPIPE
	}
	room := min(n, s.space-len(s.out))
	if room <= 0 {
		if n > 0 {
			return -1, unix.EAGAIN
		}
		return 0, 0
	}
	if s.bites.Chance(fractions) && s.net().buffer == 0 {
		room = s.bites.LogUniform(1, room)
	}
	for _, v := range vectors {
		b := bytesAt(v.Base, min(int(v.Length), room-sent))
		sent += s.put(b)
	}
	return sent, 0
}

// ReceiveVectors receives up to n bytes to where the vectors point.
func (s *stream) ReceiveVectors(n int, vectors ...sock.Vector) (received int, _ unix.Errno) {
	s.net().mu.Lock()
	defer s.net().mu.Unlock()
	switch errno := s.may(); {
	case errno != 0:
		return -1, errno
	case n == 0:
		return 0, 0
	case len(s.in) > 0:
		for _, v := range vectors {
			received += s.read(bytesAt(v.Base, min(int(v.Length), n-received)))
		}
		return received, 0
	case s.errno != 0:
		return -1, s.takeError()
	case s.ended || s.state == stateGone:
		return 0, 0
	}
	return -1, unix.EAGAIN
}

func (s *stream) Unsent() int {
	s.net().mu.Lock()
	defer s.net().mu.Unlock()
	return s.unsent()
}

func (s *stream) Info() (sock.Info, error) {
	s.net().mu.Lock()
	defer s.net().mu.Unlock()
	if errno := s.may(); errno != 0 {
		return sock.Info{}, errno
	}
	return s.info(), nil
}

func (s *stream) Number() int {
	s.net().mu.Lock()
	defer s.net().mu.Unlock()
	if s.closed {
		return -1
	}
	return s.fd
}

func (s *stream) Close() error {
	s.net().mu.Lock()
	defer s.net().mu.Unlock()
	if s.may() != 0 {
		return nil
	}
	s.closed = true
	s.owner.shut(s.fd)
	s.release()
	return nil
}
