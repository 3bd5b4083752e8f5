package rules

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ncclmesh/tests/require"
)

// Git tracks what people have written, and no program that a build has left behind.
func TestNoProgramIsTracked(t *testing.T) {
	list := exec.Command("git", "ls-files", "-z")
	list.Dir = root(t)
	out, err := list.Output()
	if err != nil {
		require.Skip(t, require.Clone, list.String()+": "+err.Error())
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		f, err := os.Open(filepath.Join(root(t), name))
		if err != nil {
			continue // removed, and not yet from the index
		}
		head := make([]byte, 4)
		n, _ := f.Read(head)
		_ = f.Close()
		if bytes.Equal(head[:n], []byte("\x7fELF")) {
			t.Errorf("%s is a program or a library: remove it from the commit", name)
		}
	}
}
