package rules

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/ncclnet/config"
)

var update = flag.Bool("update", false, "write the configuration table into the README")

const (
	configBegin = "<!-- config:begin -->\n"
	configEnd   = "<!-- config:end -->"
)

// The README's table of settings is the one the plugin reads. After a change of
// that: go test ./tests/rules -run README -update
func TestREADMEShowsTheConfiguration(t *testing.T) {
	path := filepath.Join(root(t), "README.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), configBegin)
	if !ok {
		t.Fatalf("README.md has no line %q", strings.TrimSpace(configBegin))
	}
	got, after, ok := strings.Cut(rest, configEnd)
	if !ok {
		t.Fatalf("README.md has no line %q after it", configEnd)
	}
	var b strings.Builder
	if err := config.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+configBegin+b.String()+configEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(b.String(), got); diff != "" {
		t.Errorf("run: go test ./tests/rules -run README -update\n(-want +got):\n%s", diff)
	}
}
