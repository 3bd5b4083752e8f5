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
	args := append([]string{"-s", "-C", filepath.Join(fabric.Root(), "tests/nccl"), "NCCL=" + fetched, "OUT=" + out, "-j2"}, settings...)
	cmd := exec.Command("make", args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "MAKE") || strings.HasPrefix(s, "MFLAGS") })
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return filepath.Join(out, "rank"), nil
}
