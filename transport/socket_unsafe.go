package transport

// Isolates the layout of the kernel's message header. Addresses in it are plain
// numbers, as what they point at is never Go heap.

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"ncclmesh/ibv"
)

// iovec is struct iovec, msghdr is struct user_msghdr of linux/socket.h.
type (
	iovec struct {
		base   uintptr
		length uint64
	}
	msghdr struct {
		_      uintptr // name
		_      uint32  // namelen
		_      uint32
		iov    uintptr
		iovLen uint64
		_      uintptr // control
		_      uint64  // controllen
		_      uint64  // flags, which recvmsg writes
	}
)

// Both are what x/sys/unix knows for this architecture.
const (
	_ = uint(unsafe.Sizeof(iovec{})-unsafe.Sizeof(unix.Iovec{})) + uint(unsafe.Sizeof(unix.Iovec{})-unsafe.Sizeof(iovec{}))
	_ = uint(unsafe.Sizeof(msghdr{})-unsafe.Sizeof(unix.Msghdr{})) + uint(unsafe.Sizeof(unix.Msghdr{})-unsafe.Sizeof(msghdr{}))
	_ = uint(unsafe.Offsetof(msghdr{}.iov)-unsafe.Offsetof(unix.Msghdr{}.Iov)) + uint(unsafe.Offsetof(unix.Msghdr{}.Iov)-unsafe.Offsetof(msghdr{}.iov))
	_ = uint(unsafe.Offsetof(msghdr{}.iovLen)-unsafe.Offsetof(unix.Msghdr{}.Iovlen)) + uint(unsafe.Offsetof(unix.Msghdr{}.Iovlen)-unsafe.Offsetof(msghdr{}.iovLen))

	socketMemorySize = int(unsafe.Sizeof(socketMemory{}))
)

// sendMsg sends what m says without blocking and without a signal.
//
// Preconditions: m and its vectors lie outside the Go heap.
func sendMsg(fd int, m *msghdr) (int, unix.Errno) {
	n, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), ibv.AddrOf(m), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return int(n), errno
}

// recvMsg receives into what m says without blocking.
//
// Preconditions: m and its vectors lie outside the Go heap.
func recvMsg(fd int, m *msghdr) (int, unix.Errno) {
	n, _, errno := unix.Syscall(unix.SYS_RECVMSG, uintptr(fd), ibv.AddrOf(m), unix.MSG_DONTWAIT)
	return int(n), errno
}

// queuedBytes is the number of bytes that the kernel has accepted and the peer's
// kernel has not acknowledged.
func queuedBytes(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.SIOCOUTQ) }
