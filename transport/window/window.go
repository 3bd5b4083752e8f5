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

// Prefix begins the abstract name of every window.
const Prefix = "@ncclmesh/"

// What is sent.
const (
	granted = "ncclmesh 1"
	refused = "ncclmesh 0"
)

const (
	backlog     = 16
	acceptPause = time.Millisecond // between two that look: whoever asks without end costs little
	retryPause  = time.Second      // until it is tried again to accept when there are too many descriptors
)

// A Window shows one file.
type Window struct {
	socket *os.File // non-blocking, in Go's poller
	file   *os.File
	path   string // of the socket, "" where its name is abstract
	closed atomic.Bool
	done   chan struct{}
}

// Open shows a file to whoever is of this process's user, or root. It is for the process of that id, at a path, in a
// directory, or, where that is "", under its abstract name. A socket file that nobody listens at any more is replaced. caught
// hears of a panic.
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
		_ = os.Remove(name) // what is wrong with that the next call says
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

// abandoned reports whether nobody listens at a socket file.
func abandoned(path string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) == unix.ECONNREFUSED
}

// run answers whoever looks, until Close.
func (w *Window) run() {
	defer close(w.done)
	for {
		fd, err := w.accept()
		switch {
		case w.closed.Load():
			if err == nil {
				discard(fd)
			}
			return
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil:
			time.Sleep(retryPause)
			continue
		}
		w.answer(fd)
		discard(fd)
		time.Sleep(acceptPause)
	}
}

// accept waits for somebody, whose marked socket it returns.
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

// answer gives the descriptor to who may have it. It does not block: the socket is new, and what is sent fits.
func (w *Window) answer(fd int) {
	who, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || who.Uid != 0 && int(who.Uid) != os.Geteuid() {
		_ = unix.Sendmsg(fd, []byte(refused), nil, nil, unix.MSG_NOSIGNAL) // who is gone needs no answer
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

func discard(fd int) {
	forkfd.Do(func() {
		forkfd.Clear(fd)
		_ = unix.Close(fd)
	})
}

// Close ends it, and returns when nobody looks any more. The file is its owner's.
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
