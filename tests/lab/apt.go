package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"ncclmesh/tests/internal/apt"
)

// packages are those of the host's own sources.
type packages struct{ *apt.Apt }

func newPackages(dir string) (packages, error) {
	a, err := apt.New(filepath.Join(dir, "apt"))
	return packages{a}, err
}

// refresh fetches the package lists, as root, when the host has none: container images come without.
func (a packages) refresh(ctx context.Context, p *Progress) error {
	if out, err := a.Output(ctx, "apt-cache", "show", "libibverbs1"); err == nil && out != "" {
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("apt knows no package libibverbs1; run: sudo apt-get update")
	}
	p.Say("fetching the package lists (apt-get update)")
	return update(ctx, p, 2*time.Second)
}

// update runs apt-get update. Another apt may hold the lists, as unattended upgrades do for minutes: apt itself does not wait
// for that lock.
func update(ctx context.Context, p *Progress, pause time.Duration) error {
	for said := false; ; said = true {
		cmd := exec.CommandContext(ctx, "apt-get", "-q", "update")
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		switch {
		case err == nil:
			return nil
		case !bytes.Contains(out, []byte("Could not get lock")):
			return fmt.Errorf("apt-get update: %w\n%s", err, out)
		case !said:
			p.Say("waiting for another apt: %s", strings.TrimSpace(string(out)))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("apt-get update: %w\n%s", ctx.Err(), out)
		case <-time.After(pause):
		}
	}
}

// closure returns the named packages and all that they depend on.
func (a packages) closure(ctx context.Context, names []string) ([]apt.Deb, error) {
	out, err := a.Output(ctx, "apt-get", append([]string{"-qq", "-y", "--print-uris", "install"}, names...)...)
	if err != nil {
		return nil, fmt.Errorf("resolve the packages of the guest: %w", err)
	}
	return apt.ParseURIs(out)
}

// kernelPackage matches the packages that hold a kernel image or its modules, and no meta package.
var kernelPackage = regexp.MustCompile(`^linux-(image|modules|modules-extra)-[0-9]+\.[0-9]+\.[0-9]`)

// kernel returns the packages of the newest kernel behind the first meta package that the host's sources have. Debian has
// image and modules in one package, Ubuntu in three.
func (a packages) kernel(ctx context.Context, metas []string) ([]apt.Deb, error) {
	var names []string
	for _, meta := range metas {
		out, err := a.Output(ctx, "apt-cache", "depends", meta)
		if err != nil || out == "" {
			continue
		}
		for todo := []string{meta}; len(todo) > 0; todo = todo[1:] {
			if kernelPackage.MatchString(todo[0]) {
				names = append(names, todo[0])
			}
			out, err := a.Output(ctx, "apt-cache", "depends", todo[0])
			if err != nil {
				return nil, err
			}
			for _, dep := range parseDepends(out) {
				if kernelPackage.MatchString(dep) && !slices.Contains(names, dep) && !slices.Contains(todo, dep) {
					todo = append(todo, dep)
				}
			}
		}
		if len(names) > 0 {
			break
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("apt knows none of the kernel packages %s; add Debian's main and security sources for this release "+
			"and run: apt-get update", strings.Join(metas, ", "))
	}
	out, err := a.Output(ctx, "apt-get", append([]string{"-qq", "--print-uris", "download"}, names...)...)
	if err != nil {
		return nil, fmt.Errorf("find the kernel: %w", err)
	}
	return apt.ParseURIs(out)
}

// parseDepends returns the packages that "apt-cache depends" names in "Depends:" lines.
func parseDepends(out string) []string {
	var names []string
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok {
			names = append(names, name)
		}
	}
	return names
}

// download fetches the packages that are not there yet into the directory debs and returns it.
func (a packages) download(ctx context.Context, p *Progress, what string, debs []apt.Deb) (string, error) {
	dir := filepath.Join(a.Dir, "debs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	args := []string{"-q", "download"}
	var total int64
	have := func() (n int64) {
		for _, d := range debs {
			if st, err := os.Stat(filepath.Join(dir, d.File)); err == nil {
				n += st.Size()
			}
		}
		return n
	}
	for _, d := range debs {
		total += d.Size
		if st, err := os.Stat(filepath.Join(dir, d.File)); err != nil || st.Size() != d.Size {
			args = append(args, d.Name+"="+d.Version)
		}
	}
	meter := p.Meter(what, total)
	defer meter.Done()
	if len(args) > 2 {
		stop := meter.Watch(have, 200*time.Millisecond)
		defer stop()
		cmd := a.Command(ctx, "apt-get", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("download %s: %w\n%s\n(if a package was not found, the lists are old: apt-get update)", what, err, out)
		}
	}
	return dir, nil
}
