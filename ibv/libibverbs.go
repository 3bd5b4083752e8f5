package ibv

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// libibverbs is the driver that calls the C library. Handles are the addresses of C's objects.
type libibverbs struct {
	name string
	fn   symbols
	mlx5 mlx5
}

var _ Driver = (*libibverbs)(nil)

func (l *libibverbs) Name() string { return l.name }

func (l *libibverbs) Missing(verb string) string {
	for _, s := range l.fn.table() {
		if *s.addr == 0 && strings.HasSuffix(s.name, "ibv_"+verb) {
			return s.name + "@" + s.version
		}
	}
	return ""
}

func (l *libibverbs) Devices() (devices []DeviceInfo, err error) {
	err = l.eachDevice(func(ptr uintptr) bool {
		devices = append(devices, DeviceInfo{Name: l.deviceName(ptr), GUID: l.deviceGUID(ptr)})
		return true
	})
	return devices, err
}

// eachDevice calls f with each device's address, valid during the call only, until f returns false.
func (l *libibverbs) eachDevice(f func(ptr uintptr) bool) error {
	list, n, errno := l.getDeviceList()
	if list == 0 {
		if errno == syscall.ENOSYS {
			errno = 0
		}
		return newError("get_device_list", "", 0, errno, "")
	}
	defer l.freeDeviceList(list)
	for i := range n {
		if !f(*at[uintptr](list + uintptr(i)*8)) {
			break
		}
	}
	return nil
}

func (l *libibverbs) OpenDevice(name string, guid uint64) (ContextInfo, error) {
	var ctx uintptr
	var errno syscall.Errno
	found := false
	err := l.eachDevice(func(ptr uintptr) bool {
		if found = l.deviceName(ptr) == name && l.deviceGUID(ptr) == guid; found {
			ctx, errno = l.openDevice(ptr)
		}
		return !found
	})
	switch {
	case err != nil:
	case !found:
		err = newError("open_device", name, 0, syscall.ENODEV, fmt.Sprintf("no device of this name with GUID %016x any more", guid))
	default:
		err = newError("open_device", name, 0, errno, openHint(errno))
	}
	if err != nil {
		return ContextInfo{}, err
	}
	c := at[cContext](ctx)
	return ContextInfo{Handle: ctx, CmdFD: int(c.cmdFD), AsyncFD: int(c.asyncFD), ops: *c}, nil
}

func openHint(errno syscall.Errno) string {
	switch errno {
	case syscall.EACCES, syscall.EPERM, syscall.ENOENT, syscall.ENODEV:
		return "the device file /dev/infiniband/uverbs* must exist and be open to this user; in a container: --device=/dev/infiniband"
	case syscall.ENOSYS, syscall.EOPNOTSUPP:
		return "no provider library for this device: install package ibverbs-providers (Debian, Ubuntu) or rdma-core"
	}
	return ""
}

// events are the asynchronous events of a device, waited for in Go's poller.
type events struct {
	l    *libibverbs
	ctx  uintptr
	file *os.File // a duplicate of the device's descriptor
	raw  syscall.RawConn
	fd   int // the file's
}

// Events makes the device's descriptor non-blocking, as the flag is of the open file, which the duplicate shares.
func (l *libibverbs) Events(ctx uintptr) (EventSource, error) {
	dup, err := unix.FcntlInt(uintptr(at[cContext](ctx).asyncFD), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(dup, true); err != nil {
		_ = unix.Close(dup)
		return nil, err
	}
	e := &events{l: l, ctx: ctx, file: os.NewFile(uintptr(dup), "asynchronous events"), fd: dup}
	e.raw, err = e.file.SyscallConn()
	if err == nil {
		err = e.file.SetReadDeadline(time.Time{}) // fails unless the descriptor is in the poller
	}
	if err != nil {
		_ = e.file.Close()
		return nil, err
	}
	return e, nil
}

func (e *events) Next(out *AsyncEvent) bool {
	var errno syscall.Errno
	err := e.raw.Read(func(uintptr) bool {
		errno = e.l.getAsyncEvent(e.ctx, out)
		return errno != syscall.EAGAIN && errno != syscall.EINTR
	})
	return err == nil && errno == 0
}

func (e *events) FD() int { return e.fd }

func (e *events) Close() error { return e.file.Close() }
