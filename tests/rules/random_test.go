package rules

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What the library decides at random comes from package random, so that a simulation can have it decide the same again.
func TestOneSourceOfRandomness(t *testing.T) {
	system := []string{`"crypto/rand"`, `"math/rand"`, `"math/rand/v2"`, `"hash/maphash"`}
	var from []string
	for dir, files := range sources(t) {
		if strings.HasPrefix(dir, "tools") || strings.HasPrefix(dir, "tests") {
			continue
		}
		for _, path := range files {
			for _, spec := range parse(t, path).Imports {
				if !isTest(path) && slices.Contains(system, spec.Path.Value) {
					from = append(from, dir+"/"+filepath.Base(path))
				}
			}
		}
	}
	if !slices.Equal(from, []string{"random/source.go"}) {
		t.Errorf("the system's randomness is used in %v; it belongs in random/source.go alone", from)
	}
}
