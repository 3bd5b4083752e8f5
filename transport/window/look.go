package window

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// answerTimeout is how long a process may take to answer a reader.
const answerTimeout = 2 * time.Second

// ErrForeign says that the process belongs to another user.
var ErrForeign = errors.New("only that user and root may look at its counters")

// An Owner is the process that serves a window.
type Owner struct {
	PID int // in the reader's PID namespace; 0 if it is not visible there
	UID int
}

// Find returns the names of all abstract windows in the kernel's list of sockets (/proc/net/unix), sorted.
func Find(list io.Reader) ([]string, error) {
	const listening = "00010000"
	var names []string
	for lines := bufio.NewScanner(list); ; {
		if !lines.Scan() {
			slices.Sort(names)
			return slices.Compact(names), lines.Err()
		}
		f := strings.Fields(lines.Text()) // Num RefCount Protocol Flags Type St Inode Path
		if len(f) == 8 && f[3] == listening && strings.HasPrefix(f[7], Prefix) {
			names = append(names, f[7])
		}
	}
}

// Look requests the file of a window. It returns the owner even if the owner refuses.
func Look(ctx context.Context, name string) (file *os.File, owner Owner, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	c, err := dial(ctx, name)
	if err != nil {
		return nil, owner, err
	}
	defer c.Close()
	rc, err := c.SyscallConn()
	if err != nil {
		return nil, owner, err
	}
	if e := rc.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			owner = Owner{int(cred.Pid), int(cred.Uid)}
		}
	}); errors.Join(e, err) != nil {
		return nil, owner, fmt.Errorf("read its owner: %w", errors.Join(e, err))
	}
	if me := os.Geteuid(); me != 0 && me != owner.UID {
		return nil, owner, ErrForeign // do not read a descriptor that another user's process passes
	}
	end, _ := ctx.Deadline()
	if err := c.SetDeadline(end); err != nil {
		return nil, owner, err
	}
	file, err = receive(c)
	return file, owner, err
}

// dial connects to a window. It tries again while the kernel refuses because many readers connect at once.
func dial(ctx context.Context, name string) (*net.UnixConn, error) {
	for {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unixpacket", name)
		if err == nil {
			return c.(*net.UnixConn), nil
		}
		if !errors.Is(err, syscall.EAGAIN) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("it does not answer within %v", answerTimeout)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// receive reads the answer.
func receive(c *net.UnixConn) (*os.File, error) {
	text, control := make([]byte, 64), make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := c.ReadMsgUnix(text, control)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("it does not answer within %v", answerTimeout)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var fds []int
	if messages, err := unix.ParseSocketControlMessage(control[:m]); err == nil {
		for _, m := range messages {
			if got, err := unix.ParseUnixRights(&m); err == nil {
				fds = append(fds, got...)
			}
		}
	}
	switch answer := string(text[:n]); {
	case answer == granted && len(fds) == 1:
		return os.NewFile(uintptr(fds[0]), "counters"), nil
	case answer == refused:
		err = ErrForeign
	default:
		err = fmt.Errorf("it sent %q, with %d descriptors; want %q and one", answer, len(fds), granted)
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	return nil, err
}
