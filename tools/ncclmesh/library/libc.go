package library

import (
	"debug/elf"
	"fmt"
	"strings"
)

// Needs returns the version of the GNU C library that a library needs at least, as "2.34"; "" where it needs none.
func Needs(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	newest := ""
	for _, s := range symbols {
		if v, ok := strings.CutPrefix(s.Version, "GLIBC_"); ok && Older(newest, v) {
			newest = v
		}
	}
	return newest, nil
}

// Older reports whether a version of the GNU C library, as "2.31", is older than another. None is older than any.
func Older(a, b string) bool {
	var x, y [2]int
	_, _ = fmt.Sscanf(a, "%d.%d", &x[0], &x[1]) // what is no number is 0
	_, _ = fmt.Sscanf(b, "%d.%d", &y[0], &y[1])
	return x[0] < y[0] || x[0] == y[0] && x[1] < y[1]
}
