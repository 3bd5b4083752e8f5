package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"ncclmesh/printable"
	"ncclmesh/transport"
	"ncclmesh/transport/stats"
	"ncclmesh/transport/window"
)

// A look is what was seen of a process at one moment.
type look struct {
	name string // of its window
	who  window.Owner
	snap *stats.Snapshot // nil where err says why
	err  error
}

// Windows are the names of all windows: the abstract ones of the network name space, and what at, the value of
// NCCL_MESH_STATUS, leads to.
func Windows(at string) ([]string, error) {
	list, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, fmt.Errorf("find processes: %w", err)
	}
	defer list.Close()
	names, err := window.Find(list)
	if err != nil {
		return nil, fmt.Errorf("find processes: %w", err)
	}
	if at == "" || at == transport.StatusOff {
		return names, nil
	}
	entries, err := os.ReadDir(at)
	if err != nil { // a socket's file, or none
		return append(names, at), nil
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSocket != 0 {
			names = append(names, filepath.Join(at, e.Name()))
		}
	}
	return names, nil
}

// lookAll looks at all processes there are. Those that could not be looked at are troubles.
func lookAll(ctx context.Context, find func() ([]string, error)) (seen []look, troubles []Trouble, err error) {
	names, err := find()
	if err != nil {
		return nil, nil, err
	}
	// At once, because any user of this machine may show a window that does not answer.
	all := make([]look, len(names))
	room := make(chan struct{}, atOnce)
	var looks sync.WaitGroup
	for i, name := range names {
		room <- struct{}{}
		looks.Go(func() {
			all[i] = lookAt(ctx, name)
			<-room
		})
	}
	looks.Wait()
	slices.SortStableFunc(all, func(a, b look) int { return cmp.Or(a.rank()-b.rank(), a.pid()-b.pid()) })
	for _, l := range all {
		switch {
		case l.gone():
		case l.err != nil:
			troubles = append(troubles, l.trouble())
		default:
			seen = append(seen, l)
		}
	}
	return seen, troubles, nil
}

// atOnce is how many windows are looked at at the same time. Each takes a descriptor.
const atOnce = 256

func lookAt(ctx context.Context, name string) look {
	l := look{name: name}
	var f *os.File
	if f, l.who, l.err = window.Look(ctx, name); l.err == nil {
		l.snap, l.err = stats.Read(f)
		f.Close()
	}
	return l
}

// rank puts root's processes and one's own before those of others.
func (l *look) rank() int {
	if l.who.UID == 0 && l.who.PID != 0 || l.who.UID == os.Geteuid() {
		return 0
	}
	return 1
}

// pid is the process's number, as this command sees it, or else as the process does.
func (l *look) pid() int {
	if l.who.PID == 0 && l.snap != nil {
		return l.snap.Process.PID
	}
	return l.who.PID
}

// gone reports whether a process ended between its name was found and it was looked at.
func (l *look) gone() bool {
	return errors.Is(l.err, syscall.ECONNREFUSED) || errors.Is(l.err, fs.ErrNotExist)
}

// maxTrouble is how many bytes people are shown of a name and of an error.
const maxTrouble = 300

// trouble is what kept from looking at a process. Any process can choose the name.
func (l *look) trouble() Trouble {
	t := Trouble{Name: printable.Line(l.name, maxTrouble), PID: l.who.PID, Error: printable.Line(l.err.Error(), maxTrouble)}
	if l.who.PID > 0 || errors.Is(l.err, window.ErrForeign) {
		t.User = userName(l.who.UID)
	}
	return t
}

func userName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}
