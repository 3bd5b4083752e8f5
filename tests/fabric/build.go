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

// results are what goals of the Makefile leave in its build directory, as patterns.
var results = map[string][]string{
	"build":         {"libnccl-net-mesh.so", "libnccl-net.so"},
	"arm64":         {"arm64/*"},
	"ncclmesh":      {"ncclmesh"},
	"library":       {"libncclmesh.so", "ncclmesh.h", "ncclmesh.py"},
	"netdriver":     {"netdriver", "libnccl-net-self.so"},
	"fakecuda":      {"fakecuda/libcuda.so.1"},
	"library-arm64": {"arm64/libncclmesh.so", "arm64/ncclmesh.h"},
	"fakeverbs":     {"fakeverbs/libibverbs.so*", "fakeverbs/mlx5/libmlx5.so.1", "fakeverbs/fakenet", "fakeverbs/fakefault", "fakeverbs/selftest", "fakeverbs/old/*/libibverbs.so.1"},
}

// Build makes goals of the Makefile, which may be NAME=VALUE too, and puts what
// they make into the directory build/name. The name is the caller's own, so that
// nobody replaces a library in use; all callers share the work. Two processes wait
// for each other. The error is ErrUnable where a tool is missing, anything else
// means that something is broken.
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
	shared, err := Make(goals...)
	if err != nil {
		return "", err
	}
	for _, goal := range goals {
		if strings.Contains(goal, "=") {
			continue
		}
		patterns, known := results[goal]
		if !known {
			return "", fmt.Errorf("make %s: nobody knows what that makes", goal)
		}
		for _, p := range patterns {
			if err := link(shared, dir, p); err != nil {
				return "", err
			}
		}
	}
	return dir, nil
}

// Make makes goals of the Makefile in the directory that all tests share. What is there may be replaced by others. Goals that the variable
// MESH_TEST_MADE lists, with commas between them, were made already: `make test` makes them once for all packages.
func Make(goals ...string) (dir string, err error) {
	dir = filepath.Join(Root(), "build", "shared")
	made := strings.Split(os.Getenv("MESH_TEST_MADE"), ",")
	if goals = slices.DeleteFunc(slices.Clone(goals), func(g string) bool { return slices.Contains(made, g) }); len(goals) == 0 {
		return dir, nil
	}
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

// link gives the files of a pattern below one directory the same names below another. Whoever makes such a file again makes another one, and
// leaves the link as it is.
func link(from, to, pattern string) error {
	files, err := filepath.Glob(filepath.Join(from, pattern))
	if err != nil {
		return err
	}
	for _, file := range files {
		rel, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		at := filepath.Join(to, rel)
		was, wasErr := os.Lstat(at)
		if is, err := os.Lstat(file); err != nil {
			return err
		} else if wasErr == nil && os.SameFile(was, is) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := os.Link(file, at); err != nil {
			return err
		}
	}
	return nil
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
