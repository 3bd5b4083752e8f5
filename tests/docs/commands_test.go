package docs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/require"
)

// Commands that exist are accepted, others are named.
func TestExists(t *testing.T) {
	h := &helps{texts: map[string]string{
		"": "", "doctor": "Usage:\n  ncclmesh doctor [HOST...]\n --bench", "bench link": "ncclmesh bench link HOST...", "nothing": "Usage:\n  ncclmesh [command]",
	}}
	for _, tt := range []struct{ line, want string }{
		{"ncclmesh doctor a --bench", ""},
		{"mpirun -x A=b ncclmesh doctor --bench", ""},
		{"sudo build/ncclmesh doctor -- --other", ""},
		{"ncclmesh doctor --bunch", "ncclmesh doctor has no option --bunch"},
		{"ncclmesh nothing", "ncclmesh has no command nothing"},
		{"ncclmesh bench link a b", ""},
		{"make test", ""},
		{"make BUILD=x tset", "./Makefile has no target tset"},
		{"make -C tests/fakeverbs old", ""},
		{"make -C tests/fakeverbs lod", "tests/fakeverbs/Makefile has no target lod"},
		{"go test ./handshake -run TestHandle", ""},
		{"go test ./transport/... ./handshake/...", ""},
		{"go test ./handshake -run TestNothing", "./handshake has no test that begins with TestNothing"},
		{"go test ./nowhere", "there is no package ./nowhere"},
		{"unknown --program", ""},
	} {
		got := ""
		if err := exists(strings.Fields(tt.line), h); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.line, got, tt.want)
		}
	}
}

func TestFences(t *testing.T) {
	for _, tt := range []struct {
		text string
		want string
	}{
		{"```sh\na\n```\n\n```sh not-run=root\nb\n```\n```\nc\n```\n", `[{p 1 sh  "a\n"} {p 5 sh root "b\n"} {p 8   "c\n"}]`},
		{"```sh not-run=rain\n```\n", "error"},
		{"```sh not-run=\n```\n", "error"},
		{"```sh\n", "error"},
		{"```sh\n```sh\n```\n", "error"},
	} {
		blocks, err := Fences("p", tt.text)
		var list []string
		for _, b := range blocks {
			list = append(list, fmt.Sprintf("{%s %d %s %s %q}", b.Page, b.Line, b.Lang, b.Reason, b.Text))
		}
		got := fmt.Sprint(list)
		if err != nil {
			got = "error"
		}
		if got != tt.want {
			t.Errorf("%q: got %s, %v; want %s", tt.text, got, err, tt.want)
		}
	}
}

// commands returns the blocks of all pages that are for a shell.
func commands(t *testing.T) (blocks []Fence) {
	t.Helper()
	for page, text := range read(t) {
		all, err := Fences(page, text)
		if err != nil {
			t.Error(err)
		}
		for _, b := range all {
			if b.Lang == "sh" {
				blocks = append(blocks, b)
			}
		}
	}
	if len(blocks) < 20 {
		t.Fatalf("only %d blocks of commands", len(blocks))
	}
	return blocks
}

// build makes the command and returns its directory.
func build(t *testing.T) string {
	t.Helper()
	require.Tools(t, require.CC, "make", "bash")
	dir := t.TempDir()
	cmd := exec.Command("make", "-C", Root(), "BUILD="+dir, "ncclmesh")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return dir
}

// Blocks without a reason run in the repository, with the built command in PATH, and end with status 0.
func TestCommandsRun(t *testing.T) {
	blocks, dir := commands(t), build(t)
	ran := 0
	for _, b := range blocks {
		if b.Reason != "" {
			continue
		}
		ran++
		t.Run(b.String(), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // ends what hangs
			defer cancel()
			cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", b.Text)
			cmd.Dir = Root()
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "BUILD="+t.TempDir())
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s\n%s", err, b.Text, out)
			}
		})
	}
	if ran < 4 {
		t.Errorf("only %d blocks were run", ran)
	}
}

// Commands that are not run are read by a shell, name targets of the Makefile, tests, and subcommands and options of
// ncclmesh that exist. So do those in code spans.
func TestCommandsExist(t *testing.T) {
	blocks, dir := commands(t), build(t)
	for page, text := range read(t) {
		for _, m := range regexp.MustCompile("`((?:ncclmesh|make|go test) [^`\n]+)`").FindAllStringSubmatch(text, -1) {
			blocks = append(blocks, Fence{Page: page, Line: 1 + strings.Count(text[:strings.Index(text, m[0])], "\n"), Text: m[1]})
		}
	}
	h := helps{program: filepath.Join(dir, "ncclmesh"), texts: map[string]string{}}
	for _, b := range blocks {
		if b.Lang == "sh" {
			sh := exec.Command("bash", "-n")
			sh.Stdin = strings.NewReader(b.Text)
			if out, err := sh.CombinedOutput(); err != nil {
				t.Errorf("%v: a shell does not read this: %v\n%s\n%s", b, err, out, b.Text)
			}
		}
		for line := range strings.Lines(b.Text) {
			line, _, _ = strings.Cut(line, " #")
			for _, part := range regexp.MustCompile(`&&|\||;|\$\(|\)`).Split(line, -1) {
				if err := exists(strings.Fields(part), &h); err != nil {
					t.Errorf("%v: %s: %v", b, strings.TrimSpace(line), err)
				}
			}
		}
	}
}

// exists says what of a command there is not; nil for commands that it does not know.
func exists(words []string, h *helps) error {
	for len(words) > 0 && (words[0] == "sudo" || words[0] == "eval" || strings.Contains(words[0], "=")) {
		words = words[1:]
	}
	i := slices.IndexFunc(words, func(w string) bool { return filepath.Base(strings.Trim(w, `"`)) == "ncclmesh" })
	switch {
	case i >= 0 && (i == 0 || words[0] == "mpirun"):
		return h.check(words[i+1:])
	case len(words) > 1 && words[0] == "make":
		return targetsExist(words[1:])
	case len(words) > 2 && words[0] == "go" && words[1] == "test":
		return testExists(words[2:])
	}
	return nil
}

// targetsExist looks for the targets of make, in the Makefile of the directory after -C if there is one.
func targetsExist(words []string) error {
	dir := "."
	if words[0] == "-C" && len(words) > 1 {
		dir, words = words[1], words[2:]
	}
	makefile, err := os.ReadFile(filepath.Join(Root(), dir, "Makefile"))
	if err != nil {
		return err
	}
	for _, w := range words {
		if regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(w) && !regexp.MustCompile(`(?m)^`+w+`:`).Match(makefile) {
			return fmt.Errorf("%s/Makefile has no target %s", dir, w)
		}
	}
	return nil
}

// testExists looks for the directory and the test of go test.
func testExists(words []string) error {
	dir, name := "", ""
	for i, w := range words {
		switch {
		case strings.HasPrefix(w, "./") && dir == "":
			dir = strings.TrimSuffix(w, "/...")
		case i > 0 && words[i-1] == "-run":
			name = w
		}
	}
	files, err := filepath.Glob(filepath.Join(Root(), dir, "*.go"))
	if err != nil || len(files) == 0 && !slices.ContainsFunc(words, func(w string) bool { return strings.HasSuffix(w, "/...") }) {
		return fmt.Errorf("there is no package %s", dir)
	}
	for _, f := range files {
		if text, err := os.ReadFile(f); name == "" || err == nil && strings.Contains(string(text), "\nfunc "+name) {
			return nil
		}
	}
	if name != "" {
		return fmt.Errorf("%s has no test that begins with %s", dir, name)
	}
	return nil
}

// helps is what the command says of its subcommands.
type helps struct {
	program string
	texts   map[string]string
}

// check looks for the subcommand and its options.
func (h *helps) check(words []string) error {
	var path []string
	for _, w := range words {
		if !regexp.MustCompile(`^[a-z]+$`).MatchString(w) || len(path) == 2 || len(path) == 1 && path[0] != "bench" {
			break
		}
		path = append(path, w)
	}
	key := strings.Join(path, " ")
	if _, known := h.texts[key]; !known {
		out, err := exec.Command(h.program, append(path, "--help")...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s --help: %w", key, err)
		}
		h.texts[key] = string(out)
	}
	help := h.texts[key]
	if len(path) > 0 && !strings.Contains(help, "ncclmesh "+key+" ") && !strings.Contains(help, "ncclmesh "+key+"\n") {
		return fmt.Errorf("ncclmesh has no command %s", key)
	}
	for _, w := range words[len(path):] {
		if w == "--" {
			break // what follows is another program's
		}
		option, _, _ := strings.Cut(strings.Trim(w, `"'.,;`), "=")
		if strings.HasPrefix(option, "--") && !strings.Contains(help, option) {
			return fmt.Errorf("ncclmesh %s has no option %s", key, option)
		}
	}
	return nil
}
