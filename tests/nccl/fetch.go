package nccl

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/internal/apt"
)

// A Version of NCCL that the kernels' layouts are known of.
type Version struct {
	Name  string // as upstream counts
	Suite string // of Debian that has it
	APIs  []int  // versions of the network plugin's table that it reads

	// Of the package, where the suite is released and stays as it is; elsewhere
	// the signed index says what the package must be.
	sha256 map[string]string // by architecture
}

// Versions are those there are, the oldest first.
var Versions = []Version{
	{Name: "2.22.3", Suite: "trixie", APIs: []int{5, 6, 7, 8}, sha256: map[string]string{
		"amd64": "260d89758ab6287f967f217a23cf0c5629ec3a40cfdca1b781064f48df7fb8dc",
		"arm64": "e396c990b3b3c555004e47c752a1433957c740e02270eac69052a88e93a15cf3",
	}},
	{Name: "2.29.7", Suite: "sid", APIs: []int{6, 7, 8, 9, 10, 11}},
}

// has8Bits says whether it knows floats of 8 bits.
func (v Version) has8Bits() bool { return v.Name >= "2.24" }

// hasPAT says whether it knows PAT.
func (v Version) hasPAT() bool { return v.Name >= "2.23" }

// ErrUnable marks a machine, or a day, on which this version of NCCL cannot be had.
var ErrUnable = errors.New("NCCL cannot be had here")

const (
	packageName = "libnccl-dev"
	keyring     = "/usr/share/keyrings/debian-archive-keyring.gpg"
	mirror      = "http://deb.debian.org/debian" // where the host has none
)

// Cache is where versions of NCCL are kept, a directory each.
func Cache() string { return filepath.Join(fabric.Root(), "build/nccl") }

// Fetch returns the directory that holds the version: its objects, its header. It
// asks the archive once.
func Fetch(ctx context.Context, v Version) (dir string, err error) {
	dir = filepath.Join(Cache(), v.Name)
	unlock, err := fabric.Lock(dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	done := filepath.Join(dir, "sha256") // written last
	if was, err := os.ReadFile(done); err == nil && (v.sha256 == nil || string(was) == v.sha256[runtime.GOARCH]) {
		return dir, nil
	}
	a, d, err := v.find(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("%w: NCCL %s of Debian %s: %w", ErrUnable, v.Name, v.Suite, err)
	}
	file := filepath.Join(dir, d.File)
	defer os.Remove(file)
	get := a.Command(ctx, "apt-get", "-q", "download", packageName+"/"+v.Suite)
	get.Dir = dir
	if out, err := get.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %w: %s", ErrUnable, err, out)
	}
	if err := verify(file, d.SHA256); err != nil {
		return "", err
	}
	if err := unpack(ctx, file, dir); err != nil {
		return "", fmt.Errorf("unpack %s: %w", d.File, err)
	}
	return dir, os.WriteFile(done, []byte(d.SHA256), 0o644)
}

// find asks the archive for the package, through sources of its own.
func (v Version) find(ctx context.Context, dir string) (*apt.Apt, apt.Deb, error) {
	if _, err := os.Stat(keyring); err != nil {
		return nil, apt.Deb{}, fmt.Errorf("%w; install debian-archive-keyring", err)
	}
	state := filepath.Join(dir, "apt")
	a, err := apt.New(state, "Dir::State="+state, "Dir::Etc::sourcelist="+filepath.Join(state, "sources.list"), "Dir::Etc::sourceparts=/dev/null",
		"Acquire::Languages=none", "APT::Update::Post-Invoke-Success::=true")
	if err != nil {
		return nil, apt.Deb{}, err
	}
	if err := os.MkdirAll(filepath.Join(state, "lists/partial"), 0o755); err != nil {
		return nil, apt.Deb{}, err
	}
	source := fmt.Sprintf("deb [signed-by=%s] %s %s contrib\n", keyring, site(ctx), v.Suite)
	if err := os.WriteFile(filepath.Join(state, "sources.list"), []byte(source), 0o644); err != nil {
		return nil, apt.Deb{}, err
	}
	if _, err := a.Output(ctx, "apt-get", "-qq", "update"); err != nil {
		return nil, apt.Deb{}, err
	}
	out, err := a.Output(ctx, "apt-get", "-qq", "--print-uris", "download", packageName+"/"+v.Suite)
	if err != nil {
		return nil, apt.Deb{}, err
	}
	debs, err := apt.ParseURIs(out)
	if err != nil {
		return nil, apt.Deb{}, err
	}
	d := debs[0]
	if !strings.HasPrefix(d.Version, v.Name+"-") {
		return nil, d, fmt.Errorf("the archive has %s now, of which the layouts are not known (tests/nccl/kernel/layout.h)", d.Version)
	}
	if want := v.sha256[runtime.GOARCH]; v.sha256 != nil && d.SHA256 != want {
		return nil, d, fmt.Errorf("%s has SHA256 %s; %s was expected", d.File, d.SHA256, cmp.Or(want, "none, on this architecture,"))
	}
	return a, d, nil
}

// site is the mirror that the host's own sources name.
func site(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(SITE) $(COMPONENT)", "Created-By: Packages").Output()
	if err == nil {
		for line := range strings.Lines(string(out)) {
			if url, component, _ := strings.Cut(strings.TrimSpace(line), " "); component == "main" && strings.HasSuffix(strings.TrimSuffix(url, "/"), "/debian") {
				return url
			}
		}
	}
	return mirror
}

func verify(file, want string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("%s has SHA256 %s, not %s", filepath.Base(file), got, want)
	}
	return nil
}

// unpack takes the objects and the header out of the package.
func unpack(ctx context.Context, file, dir string) error {
	for _, sub := range []string{"objects", "include"} {
		if err := errors.Join(os.RemoveAll(filepath.Join(dir, sub)), os.MkdirAll(filepath.Join(dir, sub), 0o755)); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", file)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	err = takeOut(tar.NewReader(out), dir)
	_, _ = io.Copy(io.Discard, out)
	return errors.Join(err, cmd.Wait())
}

func takeOut(files *tar.Reader, dir string) error {
	found := 0
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		switch filepath.Base(h.Name) {
		case "libnccl_static.a":
			err = objects(files, filepath.Join(dir, "objects"))
		case "nccl.h":
			err = save(filepath.Join(dir, "include/nccl.h"), files)
		default:
			continue
		}
		if err != nil {
			return err
		}
		found++
	}
	if found != 2 {
		return errors.New("the package does not have libnccl_static.a and nccl.h")
	}
	return nil
}

func save(path string, from io.Reader) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
