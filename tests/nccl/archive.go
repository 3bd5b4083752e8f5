package nccl

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// An archive of objects, as ar writes it: a magic, then members, each with a header
// of text.
const (
	arMagic  = "!<arch>\n"
	arHeader = 60
)

// A member of an archive. Names may be there twice.
type member struct {
	name string
	data io.Reader
}

// members calls f with each.
func members(archive io.Reader, f func(member) error) error {
	r := bufio.NewReader(archive)
	magic := make([]byte, len(arMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != arMagic {
		return fmt.Errorf("no archive: it begins with %q", magic)
	}
	var long string // names that do not fit into a header
	for header := make([]byte, arHeader); ; {
		if _, err := io.ReadFull(r, header); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		size, err := strconv.ParseInt(strings.TrimSpace(string(header[48:58])), 10, 64)
		if err != nil || string(header[58:]) != "`\n" {
			return fmt.Errorf("the header %q is none of a member", header)
		}
		data := &io.LimitedReader{R: r, N: size}
		switch name := strings.TrimRight(string(header[:16]), " "); {
		case name == "//":
			b, err := io.ReadAll(data)
			if err != nil {
				return err
			}
			long = string(b)
		case name == "/" || name == "/SYM64/": // the index
		default:
			if name, err = longName(name, long); err != nil {
				return err
			}
			if err := f(member{name, data}); err != nil {
				return err
			}
		}
		if _, err := io.Copy(io.Discard, data); err != nil {
			return err
		}
		if data.N > 0 {
			return io.ErrUnexpectedEOF
		}
		if size%2 == 1 {
			_, _ = r.Discard(1)
		}
	}
}

func longName(name, long string) (string, error) {
	at, isLong := strings.CutPrefix(name, "/")
	if !isLong {
		return strings.TrimSuffix(name, "/"), nil
	}
	i, err := strconv.Atoi(at)
	if err != nil || i >= len(long) {
		return "", fmt.Errorf("the name %q is not in the table of long names", name)
	}
	name, _, _ = strings.Cut(long[i:], "/\n")
	return name, nil
}

// isHost says whether a member is of the host half. Device code is not, nor are the
// stand-ins for functions of CUDA that an old one lacks.
func isHost(name string) bool {
	return !strings.HasSuffix(name, ".cu.o") && name != "device_glue.o" && name != "enhcompat.o"
}

// objects saves the members of the host half, and a source that defines what they
// name of the other: the kernels, as labels to launch them by.
func objects(archive io.Reader, dir string) error {
	var kernels []string
	n := 0
	err := members(archive, func(m member) error {
		if !isHost(m.name) {
			return nil
		}
		path := filepath.Join(dir, fmt.Sprintf("%03d-%s", n, m.name))
		n++
		if err := save(path, m.data); err != nil {
			return err
		}
		named, err := kernelsOf(path)
		kernels = append(kernels, named...)
		return err
	})
	if err != nil {
		return err
	}
	if len(kernels) == 0 {
		return errors.New("the archive names no kernel")
	}
	slices.Sort(kernels)
	var b strings.Builder
	b.WriteString("\t.data\n")
	for _, k := range slices.Compact(kernels) {
		fmt.Fprintf(&b, "\t.globl %s\n%s:\n\t.byte 0\n", k, k)
	}
	b.WriteString("\t.section .note.GNU-stack,\"\",%progbits\n")
	return os.WriteFile(filepath.Join(dir, "kernels.s"), []byte(b.String()), 0o644)
}

// kernelsOf are the symbols of kernels that the object leaves undefined.
func kernelsOf(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return nil, err
	}
	var names []string
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF && (strings.Contains(s.Name, "ncclDevKernel_") || strings.Contains(s.Name, "ncclSymkDevKernel_")) {
			names = append(names, s.Name)
		}
	}
	return names, nil
}
