package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// history is a repository of three commits: the plugin that is built of the first
// says one, that of the second two, and the third builds none. The second has libncclmesh.so too.
func history(t *testing.T) (repo string) {
	t.Helper()
	repo = t.TempDir()
	git := func(args ...string) {
		cmd := exec.Command("git", append([]string{"-C", repo, "-c", "user.name=x", "-c", "user.email=x@x"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	git("init", "-q")
	for _, c := range []struct{ tag, recipe, rest string }{
		{"one", "@mkdir -p $(BUILD) && echo one >$(BUILD)/" + library, ""},
		{"two", "@mkdir -p $(BUILD) && echo two >$(BUILD)/" + library, "library:\n\t@echo two >$(BUILD)/" + oneSided + "\n"},
		{"broken", "@echo no compiler >&2; exit 1", ""},
	} {
		if err := os.WriteFile(filepath.Join(repo, "Makefile"), []byte("build:\n\t"+c.recipe+"\n"+c.rest), 0o644); err != nil {
			t.Fatal(err)
		}
		git("add", "Makefile")
		git("commit", "-q", "-m", c.tag)
		git("tag", c.tag)
	}
	return repo
}

func TestBuildBase(t *testing.T) {
	repo, build := history(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(build, library), []byte("two\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MAKEFLAGS", "-- BUILD=elsewhere") // of the make that runs this
	tests := []struct {
		commit, holds string
		same, library bool
		err           string
	}{
		{"one", "one\n", false, false, ""},
		{"one", "one\n", false, false, ""}, // which is there
		{"two", "two\n", true, true, ""},
		{"broken^", "two\n", true, true, ""},
		{"broken", "", false, false, "no compiler"},
		{"three", "", false, false, "no such commit"},
		{"--help", "", false, false, "no such commit"},
	}
	for _, tt := range tests {
		b, err := buildBase(t.Context(), repo, tt.commit, build)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), "--base "+tt.commit) {
				t.Errorf("%s: %v, want %q", tt.commit, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.commit, err)
			continue
		}
		if holds, err := os.ReadFile(b.plugin); err != nil || string(holds) != tt.holds || b.same != tt.same {
			t.Errorf("%s: %s holds %q, %v (%v); want %q, %v", tt.commit, b.plugin, holds, b.same, err, tt.holds, tt.same)
		}
		if b.hasLibrary() != tt.library {
			t.Errorf("%s: libncclmesh.so is there: %v", tt.commit, b.hasLibrary())
		}
	}
	if left, err := filepath.Glob(filepath.Join(build, "base", "part*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
	if out, err := exec.Command("git", "-C", repo, "status", "--porcelain").Output(); err != nil || len(out) > 0 {
		t.Errorf("the repository has changed: %s (%v)", out, err)
	}
}
