package tcp

// Isolates system calls that are given addresses, the layout of the kernel's
// message header, and the copying of short parts. Addresses are plain numbers, as
// what they point at is never Go heap.

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

// rawBytes is up to how many bytes a system call is made without telling Go's
// scheduler, which costs as much as a tenth of the call. It copies them in
// microseconds, and never blocks.
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

// sendMsg sends what m says, n bytes, without blocking and without a signal.
//
// Preconditions: m and its vectors lie outside the Go heap.
func sendMsg(fd int, m *msghdr, n int) (int, unix.Errno) {
	return call(n, unix.SYS_SENDMSG, uintptr(fd), ibv.AddrOf(m), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0)
}

// recvMsg receives into what m says, n bytes at most, without blocking.
//
// Preconditions: m and its vectors lie outside the Go heap.
func recvMsg(fd int, m *msghdr, n int) (int, unix.Errno) {
	return call(n, unix.SYS_RECVMSG, uintptr(fd), ibv.AddrOf(m), unix.MSG_DONTWAIT, 0)
}

// sendTo sends n bytes at addr without blocking and without a signal.
//
// Preconditions: addr lies outside the Go heap.
func sendTo(fd int, addr uintptr, n int) (int, unix.Errno) {
	return call(n, unix.SYS_SENDTO, uintptr(fd), addr, uintptr(n), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

// recvFrom receives at most n bytes to addr without blocking.
//
// Preconditions: addr lies outside the Go heap.
func recvFrom(fd int, addr uintptr, n int) (int, unix.Errno) {
	return call(n, unix.SYS_RECVFROM, uintptr(fd), addr, uintptr(n), unix.MSG_DONTWAIT)
}

// bytesAt are the n bytes of memory at addr.
//
// Preconditions: addr lies outside the Go heap.
func bytesAt(addr uintptr, n int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n)
}

// queuedBytes is the number of bytes that the kernel has accepted and the peer's
// kernel has not acknowledged.
func queuedBytes(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.SIOCOUTQ) }
