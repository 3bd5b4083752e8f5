package sock

// This file isolates the layout of the kernel's message header, and system calls that are given addresses. Addresses are
// plain numbers, because what they point at is never Go heap.

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Vector is a stretch of memory: struct iovec of linux/uio.h.
type Vector struct {
	Base   uintptr
	Length uint64
}

// Message points to stretches of memory: struct user_msghdr of linux/socket.h.
type Message struct {
	_       uintptr // name
	_       uint32  // namelen
	_       uint32
	vectors uintptr
	count   uint64
	_       uintptr // control
	_       uint64  // controllen
	_       uint64  // flags, which recvmsg writes
}

// Both are what x/sys/unix knows for this architecture.
const (
	_ = uint(unsafe.Sizeof(Vector{})-unsafe.Sizeof(unix.Iovec{})) + uint(unsafe.Sizeof(unix.Iovec{})-unsafe.Sizeof(Vector{}))
	_ = uint(unsafe.Sizeof(Message{})-unsafe.Sizeof(unix.Msghdr{})) + uint(unsafe.Sizeof(unix.Msghdr{})-unsafe.Sizeof(Message{}))
	_ = uint(unsafe.Offsetof(Message{}.vectors)-unsafe.Offsetof(unix.Msghdr{}.Iov)) + uint(unsafe.Offsetof(unix.Msghdr{}.Iov)-unsafe.Offsetof(Message{}.vectors))
	_ = uint(unsafe.Offsetof(Message{}.count)-unsafe.Offsetof(unix.Msghdr{}.Iovlen)) + uint(unsafe.Offsetof(unix.Msghdr{}.Iovlen)-unsafe.Offsetof(Message{}.count))
)

// Set makes the message point to the first count stretches of vectors.
//
// Preconditions: vectors lies outside the Go heap.
func (m *Message) Set(vectors *Vector, count int) {
	m.vectors, m.count = uintptr(unsafe.Pointer(vectors)), uint64(count)
}

// Vectors returns the stretches that the message points to.
func (m *Message) Vectors() []Vector {
	return unsafe.Slice(*(**Vector)(unsafe.Pointer(&m.vectors)), m.count)
}

func (m *Message) addr() uintptr { return uintptr(unsafe.Pointer(m)) }

// rawBytes is up to how many bytes a system call is made without telling Go's scheduler, which costs as much as a tenth of
// the call. It copies them in microseconds, and never blocks.
const rawBytes = 64 << 10

// call makes a system call that handles n bytes.
func call(n int, trap, a, b, c, d uintptr) (int, unix.Errno) {
	var r uintptr
	var errno unix.Errno
	if n <= rawBytes {
		r, _, errno = unix.RawSyscall6(trap, a, b, c, d, 0, 0)
	} else {
		r, _, errno = unix.Syscall6(trap, a, b, c, d, 0, 0)
	}
	return int(r), errno
}
