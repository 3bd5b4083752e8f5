package main

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// compilers are the C compilers asked for, by GOARCH. The environment variable CC_<GOARCH> names another one.
var compilers = []struct {
	goarch, cc, machine, packages string
}{
	{"amd64", "x86_64-linux-gnu-gcc", "EM_X86_64", "gcc (on arm64: gcc-x86-64-linux-gnu libc6-dev-amd64-cross)"},
	{"arm64", "aarch64-linux-gnu-gcc", "EM_AARCH64", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"},
}

// readHeaders returns the layout that the headers below root give on every architecture.
func readHeaders(root string) (*layout, error) {
	version, err := headerVersion(root)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "abigen")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	// Only the verbs headers are taken from root; the rest belongs to the compiler's own architecture.
	headers, err := filepath.Abs(filepath.Join(root, "usr/include/infiniband"))
	if err != nil {
		return nil, err
	}
	if err := os.Symlink(headers, filepath.Join(dir, "infiniband")); err != nil {
		return nil, err
	}
	l := &layout{RDMACore: version, Arch: map[string]arch{}}
	for _, c := range compilers {
		data, err := compileStub(dir, c.goarch, c.cc, c.machine, c.packages)
		if err != nil {
			return nil, err
		}
		a, values, err := readDWARF(data)
		if err != nil {
			return nil, fmt.Errorf("rdma-core %s on %s: %w", version, c.goarch, err)
		}
		for name, v := range values {
			if old, ok := l.Constants[name]; ok && old != v {
				return nil, fmt.Errorf("rdma-core %s: %s is %d or %d depending on the architecture", version, name, old, v)
			}
		}
		l.Constants, l.Arch[c.goarch] = values, a
	}
	return l, nil
}

// headerVersion reads the release of rdma-core from the pkg-config file that comes with the headers: 1.14.44.0 is 44.0.
func headerVersion(root string) (string, error) {
	var files []string
	for _, pattern := range []string{"usr/lib/*/pkgconfig", "usr/lib64/pkgconfig", "usr/lib/pkgconfig"} {
		found, err := filepath.Glob(filepath.Join(root, pattern, "libibverbs.pc"))
		if err != nil {
			return "", err
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		return "", fmt.Errorf("no libibverbs.pc below %s: install libibverbs-dev (Debian, Ubuntu) or rdma-core-devel (RHEL, Fedora, SUSE)",
			filepath.Join(root, "usr"))
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		v, ok := strings.CutPrefix(line, "Version:")
		if !ok {
			continue
		}
		if parts := strings.SplitN(strings.TrimSpace(v), ".", 3); len(parts) == 3 && parts[0] == "1" {
			return parts[2], nil
		}
		return "", fmt.Errorf("%s: version %q is not 1.x.RELEASE", files[0], strings.TrimSpace(v))
	}
	return "", fmt.Errorf("%s does not tell its version", files[0])
}

func compileStub(dir, goarch, cc, machine, packages string) (*dwarf.Data, error) {
	if v := os.Getenv("CC_" + goarch); v != "" {
		cc = v
	}
	object := filepath.Join(dir, goarch+".o")
	cmd := exec.Command(cc, "-g", "-fno-eliminate-unused-debug-types", "-I", dir, "-x", "c", "-c", "-", "-o", object)
	cmd.Stdin = strings.NewReader("#include <infiniband/verbs.h>\n")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("no C compiler for %s: install %s, or name one in CC_%s: %w", goarch, packages, goarch, err)
	} else if err != nil {
		return nil, fmt.Errorf("%s cannot compile <infiniband/verbs.h>: %w: %s", cc, err, bytes.TrimSpace(stderr.Bytes()))
	}
	f, err := elf.Open(object)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Machine.String() != machine {
		return nil, fmt.Errorf("%s compiles for %s, want %s", cc, f.Machine, machine)
	}
	return f.DWARF()
}
