package mesh_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/sim/mesh"
)

// The scenarios of old failures hold. Each says at its top what it found.
func TestCorpus(t *testing.T) {
	drawsNone(t)
	files, err := filepath.Glob("testdata/corpus/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("there is no corpus: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := mesh.Parse(string(text))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if len(s.Notes) == 0 {
				t.Errorf("%s has no comment that says what it found", file)
			}
			if diff := cmp.Diff(s.String(), string(text)); diff != "" {
				t.Errorf("%s is not written as a scenario is formatted (-formatted +file):\n%s", file, diff)
			}
			mesh.Play(t, s)
		})
	}
}
