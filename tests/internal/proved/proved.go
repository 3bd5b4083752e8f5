package proved

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// file is where a package under test keeps what its tests have passed with: a line for each, with its name and a hash.
const file = "proved"

// With reports whether the files of a package, and of its folders, are those with which the test passed last, as the package's file
// "proved" has it. With PROVED=1 in the environment it is recorded there when the test passes.
func With(t *testing.T, roots ...string) bool {
	t.Helper()
	return with(t, t.Name(), roots)
}

// with is With for a test of that name.
func with(t *testing.T, name string, roots []string) bool {
	t.Helper()
	own, err := hash(roots)
	if err != nil {
		t.Fatal(err)
	}
	known, err := read()
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("PROVED") != "" {
		t.Cleanup(func() {
			if t.Failed() || t.Skipped() {
				return
			}
			if err := record(name, own); err != nil {
				t.Error(err)
			}
		})
	}
	return known[name] == own
}

// read returns the hashes, by the names of tests.
func read() (map[string]string, error) {
	known := map[string]string{}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	}
	for line := range strings.Lines(string(text)) {
		name, hash, _ := strings.Cut(strings.TrimSpace(line), " ")
		known[name] = hash
	}
	return known, err
}

// record writes a test's line.
func record(name, hash string) error {
	known, err := read()
	if err != nil {
		return err
	}
	known[name] = hash
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(known)) {
		fmt.Fprintf(&b, "%s %s\n", name, known[name])
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

// hash is that of the names and the contents of files.
func hash(roots []string) (string, error) {
	h := sha256.New()
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			fmt.Fprintf(h, "%s %d\n%s", filepath.ToSlash(path), len(text), text)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}
