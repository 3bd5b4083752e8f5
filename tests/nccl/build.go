package nccl

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"ncclmesh/tests/fabric"
)

// Program returns the path of the rank program with that version of NCCL, which is
// fetched and linked if it has not been. What it makes lies below build, which is the
// caller's own.
func Program(ctx context.Context, v Version, build string) (rank string, err error) {
	dir, err := Fetch(ctx, v)
	if err != nil {
		return "", err
	}
	return Build(dir, build)
}

// Build links the rank program to the NCCL that Fetch has put into the directory,
// and returns its path. What it makes lies below build, which is the caller's own.
// Settings are of make, NAME=VALUE: CFLAGS say.
func Build(fetched, build string, settings ...string) (rank string, err error) {
	out := filepath.Join(build, "nccl", filepath.Base(fetched))
	unlock, err := fabric.Lock(out)
	if err != nil {
		return "", err
	}
	defer unlock()
	return filepath.Join(out, "rank"), makeIn(out, fetched, settings...)
}

// NetIB returns the path of NCCL's own transport over verbs, as a plugin: what NCCL uses where it finds no other. What it makes lies
// below build, which is the caller's own.
func NetIB(ctx context.Context, build string) (plugin string, err error) {
	v := Versions[len(Versions)-1]
	dir, err := Fetch(ctx, v)
	if err != nil {
		return "", err
	}
	out := filepath.Join(build, "nccl", filepath.Base(dir))
	unlock, err := fabric.Lock(out)
	if err != nil {
		return "", err
	}
	defer unlock()
	plugin = filepath.Join(out, "libnccl-net-ib.so")
	return plugin, makeIn(out, dir, plugin)
}

// Libraries returns a directory with libnccl.so.2, which is that version of NCCL, libcuda.so.1 and libnvidia-ml.so.1, for a
// program that loads them. What it makes lies below build, which is the caller's own.
func Libraries(ctx context.Context, v Version, build string) (dir string, err error) {
	fetched, err := Fetch(ctx, v)
	if err != nil {
		return "", err
	}
	out := filepath.Join(build, "nccl", filepath.Base(fetched))
	unlock, err := fabric.Lock(out)
	if err != nil {
		return "", err
	}
	defer unlock()
	return filepath.Join(out, "lib"), makeIn(out, fetched, "lib")
}

// makeIn runs this directory's Makefile, with targets and settings. Nobody else may be at out.
func makeIn(out, fetched string, args ...string) error {
	args = append([]string{"-s", "-C", filepath.Join(fabric.Root(), "tests/nccl"), "NCCL=" + fetched, "OUT=" + out, "-j2"}, args...)
	cmd := exec.Command("make", args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "MAKE") || strings.HasPrefix(s, "MFLAGS") })
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return nil
}
