package ibv

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNotSupported is what the library, the kernel or the device cannot do.
var ErrNotSupported = errors.New("not supported")

// An Error is a verb that failed.
type Error struct {
	Op     string // the verb without its prefix: "reg_mr"
	Device string // "" where none is involved
	Port   uint8  // 0 where none is involved
	Errno  syscall.Errno
	Detail string // what was asked for, and what to do
}

// newError returns nil for errno 0.
func newError(op, device string, port uint8, errno syscall.Errno, detail string) error {
	if errno == 0 {
		return nil
	}
	return &Error{Op: op, Device: device, Port: port, Errno: errno, Detail: detail}
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("ibv: " + e.Op)
	if e.Device != "" {
		b.WriteString(" on " + e.Device)
		if e.Port != 0 {
			fmt.Fprintf(&b, " port %d", e.Port)
		}
	}
	b.WriteString(": " + e.Errno.Error())
	if name := unix.ErrnoName(e.Errno); name != "" {
		b.WriteString(" (" + name + ")")
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Errno }

// Reason returns all that the error says: it names no connection.
func (e *Error) Reason() string { return e.Error() }

// Is makes every errno that stands for a missing ability an ErrNotSupported.
func (e *Error) Is(target error) bool {
	if target != ErrNotSupported {
		return false
	}
	switch e.Errno {
	case syscall.EOPNOTSUPP, syscall.EPROTONOSUPPORT, syscall.ENOSYS:
		return true
	}
	return false
}

// memlockHint explains a refused registration or queue: the kernel counts pinned pages against a limit of the process.
func memlockHint() string {
	limit := "unknown"
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err == nil {
		if limit = "unlimited"; r.Cur != unix.RLIM_INFINITY {
			limit = fmt.Sprintf("%d KiB", r.Cur/1024)
		}
	}
	return fmt.Sprintf("the limit of locked memory (RLIMIT_MEMLOCK) is %s; raise it with `ulimit -l unlimited`, "+
		"LimitMEMLOCK=infinity (systemd) or `docker run --ulimit memlock=-1`", limit)
}

// A WCError is a work request that completed with an error.
type WCError struct {
	Status     uint32
	StatusText string
	VendorErr  uint32
	QPN        uint32
	Peer       string // the other side, in the caller's words
}

func (e *WCError) Error() string {
	s := fmt.Sprintf("ibv: work request failed on queue pair %#x", e.QPN)
	if e.Peer != "" {
		s += " to " + e.Peer
	}
	return fmt.Sprintf("%s: %s (status %d %s, vendor error %#x)", s, e.StatusText, e.Status, statusName(e.Status), e.VendorErr)
}

// Reason returns why the work request failed, without the queue pair and the other side.
func (e *WCError) Reason() string {
	name := statusName(e.Status)
	if e.StatusText == name {
		return name
	}
	return fmt.Sprintf("%s (%s)", e.StatusText, name)
}

// Err returns nil for a successful completion, else a *WCError. Peer names the other side of the queue pair.
func (wc *WC) Err(peer string) error {
	if wc.Status == IBV_WC_SUCCESS {
		return nil
	}
	return &WCError{Status: wc.Status, StatusText: StatusString(wc.Status), VendorErr: wc.VendorErr, QPN: wc.QPNum, Peer: peer}
}

// StatusString is the library's text for a completion status, or the constant's name when no library is loaded.
func StatusString(status uint32) string {
	if l := current.Load(); l != nil {
		if s := l.driver.StatusText(status); s != "" {
			return s
		}
	}
	return statusName(status)
}

func statusName(status uint32) string { return nameOf(wcStatusNames, "IBV_WC", status) }

// nameOf spells a constant; prefix is for values that newer headers may name.
func nameOf(names map[uint32]string, prefix string, v uint32) string {
	if s, ok := names[v]; ok {
		return s
	}
	return fmt.Sprintf("%s(%d)", prefix, v)
}
