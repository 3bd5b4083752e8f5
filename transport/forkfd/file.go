package forkfd

import (
	"io"
	"syscall"
)

// MarkConn marks the descriptor of a connection or file.
func MarkConn(c syscall.Conn) { withFD(c, Mark) }

// Close clears the mark of a connection or file and closes it. It may be called again.
func Close(c interface {
	syscall.Conn
	io.Closer
}) (err error) {
	Do(func() {
		withFD(c, Clear)
		err = c.Close()
	})
	return err
}

func withFD(c syscall.Conn, f func(int)) {
	if rc, err := c.SyscallConn(); err == nil {
		_ = rc.Control(func(fd uintptr) { f(int(fd)) }) // fails only on a closed socket, which is not marked
	}
}
