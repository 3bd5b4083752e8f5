package lab

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"strings"
)

// Fields of the x86 boot protocol's set-up header.
const (
	setupSectsOffset    = 0x1f1
	headerMagicOffset   = 0x202 // "HdrS"
	payloadOffsetOffset = 0x248
	payloadLengthOffset = 0x24c
)

// extractKernel returns the ELF image inside a bzImage. Booted directly it saves the guest the decompression, a second under
// emulation.
func extractKernel(bz []byte) ([]byte, error) {
	payload, err := kernelPayload(bz)
	if err != nil {
		return nil, err
	}
	vmlinux, err := decompress(payload)
	if err != nil {
		return nil, fmt.Errorf("kernel image: %w", err)
	}
	if !bytes.HasPrefix(vmlinux, []byte(elf.ELFMAG)) {
		return nil, errors.New("kernel image: what it contains is no ELF file")
	}
	return vmlinux, nil
}

func kernelPayload(bz []byte) ([]byte, error) {
	if len(bz) < payloadLengthOffset+4 || string(bz[headerMagicOffset:headerMagicOffset+4]) != "HdrS" {
		return nil, errors.New("kernel image: no x86 boot header")
	}
	start := (int64(bz[setupSectsOffset])+1)*512 + int64(binary.LittleEndian.Uint32(bz[payloadOffsetOffset:]))
	end := start + int64(binary.LittleEndian.Uint32(bz[payloadLengthOffset:]))
	if end > int64(len(bz)) || end-start < 8 {
		return nil, fmt.Errorf("kernel image: payload from %d to %d of %d bytes", start, end, len(bz))
	}
	payload := bz[start:end]
	if !bytes.HasPrefix(payload, gzipMagic) {
		payload = payload[:len(payload)-4] // the build appends the uncompressed size; gzip ends with it anyway
	}
	return payload, nil
}

var (
	gzipMagic = []byte{0x1f, 0x8b}
	xzMagic   = []byte("\xfd7zXZ\x00")
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// decompress undoes the compression that data begins with; data without one is returned as it is.
func decompress(data []byte) ([]byte, error) {
	switch {
	case bytes.HasPrefix(data, gzipMagic):
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	case bytes.HasPrefix(data, xzMagic):
		return filter(data, "xz", "-dc")
	case bytes.HasPrefix(data, zstdMagic):
		return filter(data, "zstd", "-dcq")
	}
	return data, nil
}

func filter(data []byte, tool string, args ...string) ([]byte, error) {
	cmd := exec.Command(tool, args...)
	cmd.Stdin = bytes.NewReader(data)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w %s", tool, err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

// hasPVH reports whether the emulator can enter an ELF kernel directly: it looks for the Xen note PHYS32_ENTRY.
func hasPVH(vmlinux []byte) bool {
	const phys32Entry = 18
	f, err := elf.NewFile(bytes.NewReader(vmlinux))
	if err != nil {
		return false
	}
	for _, prog := range f.Progs {
		if prog.Type != elf.PT_NOTE {
			continue
		}
		notes, err := io.ReadAll(prog.Open())
		if err != nil {
			return false
		}
		for len(notes) >= 12 {
			namesz, descsz := align4(f.ByteOrder.Uint32(notes)), align4(f.ByteOrder.Uint32(notes[4:]))
			typ := f.ByteOrder.Uint32(notes[8:])
			notes = notes[12:]
			if uint64(len(notes)) < namesz+descsz {
				return false
			}
			if typ == phys32Entry && bytes.HasPrefix(notes, []byte("Xen\x00")) {
				return true
			}
			notes = notes[namesz+descsz:]
		}
	}
	return false
}

func align4(n uint32) uint64 { return (uint64(n) + 3) &^ 3 }

// A module is one kernel module, uncompressed.
type module struct {
	Name    string
	Depends []string
	Data    []byte
}

// moduleOrder returns the wanted modules and their dependencies, dependencies first. load returns nil for a module that
// is built into the kernel.
func moduleOrder(want []string, load func(name string) (*module, error)) ([]module, error) {
	var order []module
	seen := make(map[string]bool)
	var visit func(name, by string) error
	visit = func(name, by string) error {
		name = moduleName(name)
		if seen[name] {
			return nil
		}
		seen[name] = true
		m, err := load(name)
		if err != nil {
			return fmt.Errorf("%w (needed by %s)", err, by)
		}
		if m == nil {
			return nil
		}
		for _, d := range m.Depends {
			if err := visit(d, name); err != nil {
				return err
			}
		}
		order = append(order, *m)
		return nil
	}
	for _, name := range want {
		if err := visit(name, "the lab"); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// moduleName is the name the kernel knows a module by: that of its file with '_' for '-' and without endings.
func moduleName(file string) string {
	base, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(base, "-", "_")
}

// moduleDepends reads a module's dependencies from the module itself.
func moduleDepends(ko []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return nil, err
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, errors.New("no section .modinfo")
	}
	info, err := s.Data()
	if err != nil {
		return nil, err
	}
	return parseDependsTag(info), nil
}

// parseDependsTag finds "depends=a,b" among the NUL-terminated strings of a .modinfo section.
func parseDependsTag(info []byte) []string {
	for entry := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := bytes.CutPrefix(entry, []byte("depends=")); ok && len(list) > 0 {
			return strings.Split(string(list), ",")
		}
	}
	return nil
}
