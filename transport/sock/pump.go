package sock

import (
	"io"
	"os"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/forkfd"
)

// pumpSize is how many bytes the pipe of a pump holds, if the kernel grants that.
const pumpSize = 1 << 20

// Pump has the kernel move the bytes from socket to socket, through a pipe. Where this process can have no pipe it copies
// them.
func (c *conn) Pump(to Conn, moved func(n int)) error {
	out := to.(*conn)
	in, err := newPipe()
	if err != nil {
		return copyTo(out, c, moved)
	}
	defer in.close()
	for {
		n, err := in.fill(c)
		if err != nil || n == 0 {
			return c.wrap("splice", err)
		}
		if err := in.empty(out, n); err != nil {
			return out.wrap("splice", err)
		}
		moved(n)
	}
}

// copyTo moves bytes through the memory of this process.
func copyTo(to, from *conn, moved func(n int)) error {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return err
			}
			moved(n)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// pipe is one that bytes are spliced through.
type pipe struct{ r, w int }

func newPipe() (*pipe, error) {
	var fds [2]int
	var err error
	forkfd.Do(func() {
		if err = unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err == nil {
			forkfd.Mark(fds[0])
			forkfd.Mark(fds[1])
		}
	})
	if err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pumpSize) // a smaller one does as well, more slowly
	return &pipe{fds[0], fds[1]}, nil
}

func (p *pipe) close() {
	for _, fd := range []int{p.r, p.w} {
		_ = forkfd.CloseFD(fd)
	}
}

// fill waits for bytes of a connection and moves them into the pipe, which is empty; 0 at the end of the stream.
func (p *pipe) fill(from *conn) (n int, err error) {
	err = from.whenReadable(func(fd int) (err error) {
		n, err = splice(fd, p.w, pumpSize)
		return err
	})
	return n, err
}

// empty moves the n bytes in the pipe to a connection.
func (p *pipe) empty(to *conn, n int) error {
	for n > 0 {
		err := to.whenWritable(func(fd int) error {
			m, err := splice(p.r, fd, n)
			n -= m
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// splice moves up to n bytes from one descriptor to another without waiting.
func splice(from, to, n int) (int, error) {
	for {
		m, err := unix.Splice(from, nil, to, nil, n, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if err != unix.EINTR {
			return int(max(m, 0)), err
		}
	}
}
