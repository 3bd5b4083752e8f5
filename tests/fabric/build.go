package fabric

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/internal/need"
)

// ErrUnable marks a machine that lacks what it takes.
var ErrUnable = errors.New("no fabric can be made here")

// Root is the directory of the module.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../..")
}

// Build makes goals of the Makefile, which may be NAME=VALUE too, into the
// directory build/name. The name is the caller's own, so that nobody replaces a
// library in use; two processes of one name wait for each other. The error is
// ErrUnable where a tool is missing, anything else means that something is
// broken.
func Build(name string, goals ...string) (dir string, err error) {
	if err := need.Missing("make", "gcc", "ip", need.VerbsHeader); err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnable, err)
	}
	dir = filepath.Join(Root(), "build", name)
	unlock, err := Lock(dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	cmd := exec.Command("make", append([]string{"-C", Root(), "BUILD=" + dir}, goals...)...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "MAKE") || strings.HasPrefix(s, "MFLAGS") })
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return dir, nil
}

// Lock makes a directory and keeps others that ask for it out until unlock.
func Lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
