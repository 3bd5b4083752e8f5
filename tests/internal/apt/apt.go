package apt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// An Apt is the tools of apt with a directory of their own.
type Apt struct {
	Dir     string
	options []string
}

// A Deb is one package as the archive has it.
type Deb struct {
	Name, Version, File string
	Size                int64
	SHA256              string // empty when the archive has none
}

// New makes the directory. Options, NAME=VALUE, are added to those that keep the
// host out of it.
func New(dir string, options ...string) (*Apt, error) {
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%s: not found; packages are taken from Debian's or Ubuntu's archive, which needs a host with "+
				"apt (in a container: debian:12 will do)", tool)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "archives/partial"), 0o755); err != nil {
		return nil, err
	}
	a := &Apt{Dir: dir, options: []string{
		"-o", "Dir::State::status=" + filepath.Join(dir, "status"),
		"-o", "Dir::Cache=" + dir,
		"-o", "Debug::NoLocking=1",
		"-o", "APT::Sandbox::User=root",
		"-o", "APT::Install-Recommends=0",
	}}
	for _, o := range options {
		a.options = append(a.options, "-o", o)
	}
	return a, os.WriteFile(filepath.Join(dir, "status"), nil, 0o644) // nothing is installed, so every dependency is named
}

// Command is one of apt's tools, apt-get say.
func (a *Apt) Command(ctx context.Context, tool string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, tool, append(append([]string(nil), a.options...), args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	return cmd
}

// Output runs one of apt's tools and returns what it prints.
func (a *Apt) Output(ctx context.Context, tool string, args ...string) (string, error) {
	cmd := a.Command(ctx, tool, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", tool, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// ParseURIs reads what "apt-get --print-uris" prints: 'URI' FILE SIZE [HASH], one
// package a line.
func ParseURIs(out string) ([]Deb, error) {
	var debs []Deb
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
		d := Deb{Name: parts[0], Version: version, File: f[1], Size: size}
		if len(f) > 3 {
			d.SHA256, _ = strings.CutPrefix(f[3], "SHA256:")
		}
		debs = append(debs, d)
	}
	if len(debs) == 0 {
		return nil, errors.New("apt-get --print-uris named no package")
	}
	return debs, nil
}
