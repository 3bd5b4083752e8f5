package window

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/guard"
	"ncclmesh/transport/forkfd"
)

// Prefix is the start of the abstract name of every window.
const Prefix = "@ncclmesh/"

// The answers.
const (
	granted = "ncclmesh 1"
	refused = "ncclmesh 0"
)

const (
	backlog     = 16
	acceptPause = time.Millisecond // after each reader, to limit the cost of one that connects without end
	retryPause  = time.Second      // before accept is called again after an error, such as too many open descriptors
)

// A Window serves one file.
type Window struct {
	socket *os.File // non-blocking, in Go's poller
	file   *os.File
	path   string // path of the socket file, "" if the name is abstract
	closed atomic.Bool
	done   chan struct{}
}

// Open serves a file to processes of this user and of root. at is the path of the socket, or a directory in
// which the socket is named by id; if at is "" the socket has an abstract name made of id. A socket file on
// which no process listens is replaced. caught is called with a panic of the window's goroutine.
func Open(at string, id [16]byte, file *os.File, caught func(*guard.Panic)) (*Window, error) {
	w := &Window{file: file, path: at, done: make(chan struct{})}
	name := at
	if at == "" {
		name = Prefix + hex.EncodeToString(id[:])
	} else if info, err := os.Stat(at); err == nil && info.IsDir() {
		w.path = filepath.Join(at, hex.EncodeToString(id[:]))
		name = w.path
	}
	if err := w.listen(name); err != nil {
		return nil, fmt.Errorf("show counters at %s: %w", name, err)
	}
	go guard.Run(w.run, caught)
	return w, nil
}

func (w *Window) listen(name string) (err error) {
	fd := -1
	forkfd.Do(func() {
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err == nil {
			forkfd.Mark(fd)
		}
	})
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	w.socket = os.NewFile(uintptr(fd), name)
	at := &unix.SockaddrUnix{Name: name}
	if err = unix.Bind(fd, at); err == unix.EADDRINUSE && w.path != "" && abandoned(name) {
		_ = os.Remove(name) // the following bind returns an error if this failed
		err = unix.Bind(fd, at)
	}
	if err != nil {
		err = os.NewSyscallError("bind", err)
	} else if err = unix.Listen(fd, backlog); err != nil {
		err = os.NewSyscallError("listen", err)
	}
	if err != nil {
		_ = forkfd.Close(w.socket)
	}
	return err
}

// abandoned reports whether no process listens on a socket file.
func abandoned(path string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) == unix.ECONNREFUSED
}

// run answers readers until Close.
func (w *Window) run() {
	defer close(w.done)
	for {
		fd, err := w.accept()
		switch {
		case w.closed.Load():
			if err == nil {
				_ = forkfd.CloseFD(fd)
			}
			return
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil:
			time.Sleep(retryPause)
			continue
		}
		w.answer(fd)
		_ = forkfd.CloseFD(fd)
		time.Sleep(acceptPause)
	}
}

// accept waits for a reader and returns its socket, which is marked for forkfd.
func (w *Window) accept() (fd int, err error) {
	rc, err := w.socket.SyscallConn()
	if err != nil {
		return -1, err
	}
	waited := rc.Read(func(ln uintptr) bool {
		forkfd.Do(func() {
			if fd, _, err = unix.Accept4(int(ln), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK); err == nil {
				forkfd.Mark(fd)
			}
		})
		return err != unix.EAGAIN
	})
	return fd, errors.Join(waited, os.NewSyscallError("accept4", err))
}

// answer passes the descriptor to a reader that is allowed to have it. It does not block, because the socket is
// new and its buffer has room for the answer.
func (w *Window) answer(fd int) {
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		_ = unix.Sendmsg(fd, []byte(refused), nil, nil, unix.MSG_NOSIGNAL) // ignore the error: the reader may have closed the socket
		return
	}
	rc, err := w.file.SyscallConn()
	if err != nil {
		return
	}
	_ = rc.Control(func(file uintptr) {
		_ = unix.Sendmsg(fd, []byte(granted), unix.UnixRights(int(file)), nil, unix.MSG_NOSIGNAL)
	})
}

// Close stops serving and returns when no reader is being answered. It does not close the file.
func (w *Window) Close() error {
	if w.closed.Swap(true) {
		return nil
	}
	if w.path != "" {
		_ = os.Remove(w.path)
	}
	err := forkfd.Close(w.socket)
	<-w.done
	return err
}
