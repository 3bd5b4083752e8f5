package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const library = "libnccl-net-mesh.so"

// A base is a plugin that this one is measured beside.
type base struct {
	commit string // its full name
	plugin string // libncclmesh.so, if the commit has it, is beside it
	same   bool   // as the other, byte by byte
}

// buildBase builds the plugin of a commit as that commit's Makefile does, in a
// checkout of its own below build. Only the plugin is of the base: programs and
// fabric are those at hand, so that nothing else differs.
func buildBase(ctx context.Context, repo, commit, build string) (base, error) {
	out, err := output(ctx, repo, "git", "rev-parse", "--verify", "--quiet", "--end-of-options", commit+"^{commit}")
	if err != nil {
		return base{}, fmt.Errorf("--base %s: no such commit in %s; give a branch, a tag or a hash: %w", commit, repo, err)
	}
	b := base{commit: strings.TrimSpace(out)}
	dir := filepath.Join(build, "base", b.commit)
	if err := checkout(ctx, repo, b.commit, dir); err != nil {
		return base{}, fmt.Errorf("--base %s: %w", commit, err)
	}
	goals, err := goals(dir)
	if err != nil {
		return base{}, fmt.Errorf("--base %s: %w", commit, err)
	}
	if _, err := output(ctx, dir, "make", append(goals, "BUILD=build")...); err != nil {
		return base{}, fmt.Errorf("--base %s: make %s in %s: %w", commit, strings.Join(goals, " "), dir, err)
	}
	b.plugin = filepath.Join(dir, "build", library)
	b.same, err = sameFiles(b.plugin, filepath.Join(build, library))
	return b, err
}

// goals are what is made of a checkout: the plugin, and libncclmesh.so if its Makefile knows that.
func goals(dir string) ([]string, error) {
	makefile, err := os.ReadFile(filepath.Join(dir, "Makefile"))
	if err != nil {
		return nil, err
	}
	if bytes.Contains(makefile, []byte("\nlibrary:")) {
		return []string{"build", "library"}, nil
	}
	return []string{"build"}, nil
}

// hasLibrary reports whether libncclmesh.so is beside the plugin.
func (b base) hasLibrary() bool {
	_, err := os.Stat(filepath.Join(filepath.Dir(b.plugin), oneSided))
	return err == nil
}

// checkout leaves the files of a commit in dir, unless they are there.
func checkout(ctx context.Context, repo, commit, dir string) (err error) {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	part, err := os.MkdirTemp(filepath.Dir(dir), "part")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(part)) }()
	archive, files := filepath.Join(part, "archive.tar"), filepath.Join(part, "files")
	if err := os.Mkdir(files, 0o755); err != nil {
		return err
	}
	if _, err := output(ctx, repo, "git", "archive", "--output="+archive, commit); err != nil {
		return err
	}
	if _, err := output(ctx, files, "tar", "-xf", archive); err != nil {
		return err
	}
	return os.Rename(files, dir)
}

// output runs a program that is no part of a make that runs this one.
func output(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS=")
	})
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, args[0], err, bytes.TrimSpace(said.Bytes()))
	}
	return string(out), nil
}

func sameFiles(a, b string) (bool, error) {
	one, err := os.ReadFile(a)
	if err != nil {
		return false, err
	}
	other, err := os.ReadFile(b)
	return bytes.Equal(one, other), err
}
