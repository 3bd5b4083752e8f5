package proved

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// file is where a package under test keeps the hash of what it has passed with.
const file = "proved"

// With reports whether the files of a package, and of its folders, are those with which a test passed last, as the package's file
// "proved" has it. With PROVED=1 in the environment the test records them when it passes.
func With(t *testing.T, roots ...string) bool {
	t.Helper()
	own, err := hash(roots)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("PROVED") != "" {
		t.Cleanup(func() {
			if t.Failed() || t.Skipped() {
				return
			}
			if err := os.WriteFile(file, []byte(own), 0o644); err != nil {
				t.Error(err)
			}
		})
	}
	was, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return own == string(was)
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
	return fmt.Sprintf("%x\n", h.Sum(nil)), nil
}
