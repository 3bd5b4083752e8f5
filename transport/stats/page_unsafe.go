package stats

// This file isolates the memory that other processes map.

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/forkfd"
)

const pageSize = int(unsafe.Sizeof(page{}))

// The sizes are part of the layout. They are multiples of 64, so that slots share no cache line.
const (
	_ = -(unsafe.Sizeof(header{}) % 64) - (unsafe.Sizeof(Relay{}) % 64) - (unsafe.Sizeof(port{}) % 64)
	_ = -(unsafe.Sizeof(pathSlot{}) % 64) - (unsafe.Sizeof(Conn{}) % 64) - (unsafe.Sizeof(Lane{}) % 64) - (unsafe.Sizeof(noticeSlot{}) % 64)
)

// retired holds the addresses of closed pages, for later pages.
var retired struct {
	sync.Mutex
	at []unsafe.Pointer
}

// reserve returns addresses for a page.
func reserve() (unsafe.Pointer, error) {
	retired.Lock()
	defer retired.Unlock()
	if n := len(retired.at); n > 0 {
		at := retired.at[n-1]
		retired.at = retired.at[:n-1]
		return at, nil
	}
	return unix.MmapPtr(-1, 0, nil, uintptr(pageSize), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
}

// retire replaces the memory of a page by private zeros, where late writes do no harm, and keeps the addresses
// for the next page.
func retire(at unsafe.Pointer) {
	_, err := unix.MmapPtr(-1, 0, at, uintptr(pageSize), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED)
	if err != nil {
		return // the old memory stays mapped, and its addresses are not used again
	}
	_ = dontFork(at)
	retired.Lock()
	defer retired.Unlock()
	retired.at = append(retired.at, at)
}

func dontFork(at unsafe.Pointer) error {
	return unix.Madvise(unsafe.Slice((*byte)(at), pageSize), unix.MADV_DONTFORK)
}

// share creates a page in a sealed memfd, and a read-only descriptor of it.
func share() (_ *page, readonly *os.File, err error) {
	fd, err := memfd()
	if err != nil {
		return nil, nil, fmt.Errorf("make shared memory: %w", err)
	}
	defer func() { _ = forkfd.CloseFD(fd) }() // the mapping stays
	if err := unix.Ftruncate(fd, int64(pageSize)); err != nil {
		return nil, nil, fmt.Errorf("size shared memory: %w", err)
	}
	at, err := reserve()
	if err != nil {
		return nil, nil, fmt.Errorf("reserve addresses: %w", err)
	}
	defer func() {
		if err != nil {
			retire(at)
		}
	}()
	if _, err := unix.MmapPtr(fd, 0, at, uintptr(pageSize), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		return nil, nil, fmt.Errorf("map shared memory: %w", err)
	}
	if err := dontFork(at); err != nil {
		return nil, nil, fmt.Errorf("keep shared memory from forked children: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, nil, fmt.Errorf("seal shared memory (Linux 5.1 and later can): %w", err)
	}
	forkfd.Do(func() {
		// Opened again, because a duplicate of the descriptor could be written.
		if readonly, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY, 0); err == nil {
			forkfd.MarkConn(readonly)
		}
	})
	if err != nil {
		return nil, nil, fmt.Errorf("open shared memory for readers: %w", err)
	}
	return (*page)(at), readonly, nil
}

// seals guarantee to a reader that only processes which have already mapped the page can write it, and that its
// size does not change.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE

// memfd creates an empty memfd, marked for forkfd. Kernels before 6.3 do not support MFD_NOEXEC_SEAL, so memfd
// tries again without that flag.
func memfd() (fd int, err error) {
	forkfd.Do(func() {
		const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
		if fd, err = unix.MemfdCreate("ncclmesh", flags|unix.MFD_NOEXEC_SEAL); err == unix.EINVAL {
			fd, err = unix.MemfdCreate("ncclmesh", flags)
		}
		if err == nil {
			forkfd.Mark(fd)
		}
	})
	return fd, err
}

// unshare frees the memory of a shared page.
func unshare(p *page) { retire(unsafe.Pointer(p)) }

// mapped maps a file for reading and returns its words, and a function that unmaps it.
func mapped(fd int, size int) (words []atomic.Uint64, unmap func(), err error) {
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	return unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(&b[0])), size/8), func() { _ = unix.Munmap(b) }, nil
}

// memory returns the page's words, as a reader maps them.
func (p *page) memory() []atomic.Uint64 {
	return unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(p)), pageSize/8)
}

// tables returns the offset of each list, the size of its slots, and their number.
func (p *page) tables() [lists][3]uint64 {
	return [lists][3]uint64{
		listPorts:   {uint64(unsafe.Offsetof(p.ports)), uint64(unsafe.Sizeof(port{})), maxPorts},
		listPaths:   {uint64(unsafe.Offsetof(p.paths)), uint64(unsafe.Sizeof(pathSlot{})), maxPaths},
		listConns:   {uint64(unsafe.Offsetof(p.conns)), uint64(unsafe.Sizeof(Conn{})), maxConns},
		listLanes:   {uint64(unsafe.Offsetof(p.lanes)), uint64(unsafe.Sizeof(Lane{})), maxLanes},
		listNotices: {uint64(unsafe.Offsetof(p.notices)), uint64(unsafe.Sizeof(noticeSlot{})), maxNotices},
	}
}
