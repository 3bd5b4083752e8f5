package limit

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Descriptors returns how many descriptors the process may ever have.
func Descriptors() uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return math.MaxUint64
	}
	return l.Max
}

// Error is a system call that failed because this node has run out of something.
type Error struct {
	Err  error
	hint string
}

func (e *Error) Error() string { return e.Err.Error() + e.hint }
func (e *Error) Unwrap() error { return e.Err }

// Out returns err as an *Error of something that Own does not know by itself; the hint continues what err says.
func Out(err error, hint string) error { return &Error{err, hint} }

// Own returns err; as an *Error, which names the limit, if it says that this node has run out of something.
func Own(err error) error {
	var own *Error
	switch {
	case err == nil, errors.As(err, &own):
		return err
	case errors.Is(err, unix.EMFILE):
		var l unix.Rlimit
		_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &l) // cannot fail with these arguments
		return &Error{err, fmt.Sprintf(": this process is out of file descriptors (limit %d); raise the limit (ulimit -n)", l.Cur)}
	case errors.Is(err, unix.ENFILE):
		return &Error{err, ": this machine is out of file descriptors; raise the limit fs.file-max (sysctl)"}
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOBUFS):
		return &Error{err, ": this machine is out of memory for sockets; see net.ipv4.tcp_mem (sysctl) and free"}
	}
	return err
}

// IsOwn reports whether an error says that this node has run out of something.
func IsOwn(err error) bool {
	var own *Error
	return errors.As(Own(err), &own)
}
