package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// apt asks the host's package sources for packages without touching the host: its own state, its own cache, no installation.
type apt struct{ dir string }

// A deb is one package as the archive has it.
type deb struct {
	Name, Version, File string
	Size                int64
}

func newApt(dir string) (*apt, error) {
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%s: not found; the lab takes its kernel and programs from Debian or Ubuntu packages and "+
				"needs a host with apt (in a container: debian:12 will do)", tool)
		}
	}
	a := &apt{dir: filepath.Join(dir, "apt")}
	if err := os.MkdirAll(filepath.Join(a.dir, "archives/partial"), 0o755); err != nil {
		return nil, err
	}
	return a, os.WriteFile(filepath.Join(a.dir, "status"), nil, 0o644) // nothing is installed, so every dependency is named
}

func (a *apt) output(ctx context.Context, tool string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, tool, append([]string{
		"-o", "Dir::State::status=" + filepath.Join(a.dir, "status"),
		"-o", "Dir::Cache=" + a.dir,
		"-o", "Debug::NoLocking=1",
		"-o", "APT::Sandbox::User=root",
		"-o", "APT::Install-Recommends=0",
	}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", tool, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// refresh fetches the package lists, as root, when the host has none: container images come without.
func (a *apt) refresh(ctx context.Context, p *Progress) error {
	if out, err := a.output(ctx, "apt-cache", "show", "libibverbs1"); err == nil && out != "" {
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
func (a *apt) closure(ctx context.Context, names []string) ([]deb, error) {
	out, err := a.output(ctx, "apt-get", append([]string{"-qq", "-y", "--print-uris", "install"}, names...)...)
	if err != nil {
		return nil, fmt.Errorf("resolve the packages of the guest: %w", err)
	}
	return parseURIs(out)
}

// kernelPackage matches the packages that hold a kernel image or its modules, and no meta package.
var kernelPackage = regexp.MustCompile(`^linux-(image|modules|modules-extra)-[0-9]+\.[0-9]+\.[0-9]`)

// kernel returns the packages of the newest kernel behind the first meta package that the host's sources have. Debian has
// image and modules in one package, Ubuntu in three.
func (a *apt) kernel(ctx context.Context, metas []string) ([]deb, error) {
	var names []string
	for _, meta := range metas {
		out, err := a.output(ctx, "apt-cache", "depends", meta)
		if err != nil || out == "" {
			continue
		}
		for todo := []string{meta}; len(todo) > 0; todo = todo[1:] {
			if kernelPackage.MatchString(todo[0]) {
				names = append(names, todo[0])
			}
			out, err := a.output(ctx, "apt-cache", "depends", todo[0])
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
	out, err := a.output(ctx, "apt-get", append([]string{"-qq", "--print-uris", "download"}, names...)...)
	if err != nil {
		return nil, fmt.Errorf("find the kernel: %w", err)
	}
	return parseURIs(out)
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

// parseURIs reads what "apt-get --print-uris" prints: 'URI' FILE SIZE [HASH], one package a line.
func parseURIs(out string) ([]deb, error) {
	var debs []deb
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 3 || !strings.HasPrefix(f[0], "'") {
			continue // a remark
		}
		parts := strings.Split(f[1], "_")
		size, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil || len(parts) != 3 {
			return nil, fmt.Errorf("apt-get --print-uris: cannot read %q; expected 'URI' NAME_VERSION_ARCH.deb SIZE", strings.TrimSpace(line))
		}
		version, err := url.PathUnescape(parts[1])
		if err != nil {
			return nil, fmt.Errorf("apt-get --print-uris: version %q: %w", parts[1], err)
		}
		debs = append(debs, deb{Name: parts[0], Version: version, File: f[1], Size: size})
	}
	if len(debs) == 0 {
		return nil, errors.New("apt-get --print-uris named no package")
	}
	return debs, nil
}

// download fetches the packages that are not there yet into the directory debs and returns it.
func (a *apt) download(ctx context.Context, p *Progress, what string, debs []deb) (string, error) {
	dir := filepath.Join(a.dir, "debs")
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
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "Dir::Cache=" + a.dir, "-o", "Debug::NoLocking=1",
			"-o", "APT::Sandbox::User=root", "-o", "Dir::State::status=" + filepath.Join(a.dir, "status")}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("download %s: %w\n%s\n(if a package was not found, the lists are old: apt-get update)", what, err, out)
		}
	}
	return dir, nil
}
