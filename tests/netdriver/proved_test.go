package netdriver

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// provedFile holds the hash of the driver, the reference plugin and the list of faults with which every
// fault was found. `FULL=1 PROVED=1 go test -run TestFaults ./tests/netdriver` writes it.
const provedFile = "proved"

// unproved reports whether the folder differs from the one in which every fault was found. With PROVED=1 in
// the environment it records the folder's hash after a test that passed.
func unproved(t *testing.T) bool {
	t.Helper()
	hash := sha256.New()
	for _, root := range []string{"Makefile", "netdriver_test.go", "selfplugin", "src"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			fmt.Fprintf(hash, "%s %d\n%s", filepath.ToSlash(path), len(text), text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	own := fmt.Sprintf("%x\n", hash.Sum(nil))
	if full && os.Getenv("PROVED") != "" {
		t.Cleanup(func() {
			if t.Failed() {
				return
			}
			if err := os.WriteFile(provedFile, []byte(own), 0o644); err != nil {
				t.Error(err)
			}
		})
	}
	was, err := os.ReadFile(provedFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return own != string(was)
}

// commit returns a number that is the commit's own: what a test chooses by it, it chooses again at the same
// commit. It is 0 outside of a repository.
func commit(t *testing.T) uint8 {
	t.Helper()
	out, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return 0
	}
	return sha256.Sum256([]byte(strings.TrimSpace(string(out))))[0]
}
