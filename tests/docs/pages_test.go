package docs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/ncclnet/config"
)

// read returns the text of each page by its path.
func read(t *testing.T) map[string]string {
	t.Helper()
	pages, err := Pages()
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 60 {
		t.Fatalf("only %d pages: %v", len(pages), pages)
	}
	texts := map[string]string{}
	for _, page := range pages {
		b, err := os.ReadFile(filepath.Join(Root(), page))
		if err != nil {
			t.Fatal(err)
		}
		texts[page] = string(b)
	}
	return texts
}

func TestPagesAreCurrent(t *testing.T) {
	facts, err := ReadFacts()
	if err != nil {
		t.Fatal(err)
	}
	matched := map[string]bool{}
	for page, text := range read(t) {
		want, err := Generate(facts, page, text)
		if err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(want, text); diff != "" {
			t.Errorf("%s: run go generate ./tests/docs\n(-want +got):\n%s", page, diff)
		}
		for name := range facts.blocks {
			if strings.Contains(text, "<!-- "+name+":begin -->\n") {
				matched[name] = true
			}
		}
		for _, s := range facts.sentences {
			if s.pattern.MatchString(text) {
				matched[s.pattern.String()] = true
			}
		}
	}
	for name := range facts.blocks {
		if !matched[name] {
			t.Errorf("no page has block %s", name)
		}
	}
	for _, s := range facts.sentences {
		if !matched[s.pattern.String()] {
			t.Errorf("no page has a sentence like %s", s.pattern)
		}
	}
}

func TestGenerate(t *testing.T) {
	f := &Facts{
		blocks:    map[string]string{"a": "new\n"},
		sentences: []sentence{{regexp.MustCompile(`(\d+) of them`), "7"}},
	}
	tests := []struct {
		name, page, text, want, err string
	}{
		{"block", "x.md", "1\n<!-- a:begin -->\nold\n<!-- a:end -->\n2\n", "1\n<!-- a:begin -->\nnew\n<!-- a:end -->\n2\n", ""},
		{"sentences", "x.md", "3 of them, 4 of us, 5 of them", "7 of them, 4 of us, 7 of them", ""},
		{"changelog", "CHANGELOG.md", "3 of them", "3 of them", ""},
		{"foreign", "x.md", "<!-- unread:begin -->\nold\n<!-- unread:end -->\n", "<!-- unread:begin -->\nold\n<!-- unread:end -->\n", ""},
		{"unknown", "x.md", "<!-- b:begin -->\n<!-- b:end -->\n", "", "x.md: nothing generates block b"},
		{"crossed", "x.md", "<!-- a:begin -->\n<!-- b:end -->\n", "", "x.md: block a ends as b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Generate(f, tt.page, tt.text)
			said := ""
			if err != nil {
				said = err.Error()
			}
			if got != tt.want || said != tt.err {
				t.Errorf("got %q, error %q; want %q, error %q", got, said, tt.want, tt.err)
			}
		})
	}
}

func TestREADMEIsShort(t *testing.T) {
	text := read(t)["README.md"]
	if n := strings.Count(text, "\n"); n > 180 {
		t.Errorf("README.md has %d lines; at most 180: move what only some readers need to a page under docs", n)
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	pages := slices.Sorted(maps.Keys(read(t)))
	linked, err := CheckLinks(Root(), pages)
	if err != nil {
		t.Error(err)
	}
	for _, page := range pages {
		if page != "README.md" && !linked[page] && !linked[filepath.Dir(page)] {
			t.Errorf("no page links to %s", page)
		}
	}
}

func TestAnchors(t *testing.T) {
	got := anchors("# One: two `three`\n```\n# no heading\n```\n## NCCL's own, or 4\n")
	if diff := cmp.Diff([]string{"one-two-three", "nccls-own-or-4"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// directories returns the names of the repository's directories, without those of git and of builds.
func directories(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(Root())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != "build" && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, regexp.QuoteMeta(e.Name()))
		}
	}
	return names
}

// Paths in code spans exist. A path is one that begins with a directory of the repository.
func TestPathsExist(t *testing.T) {
	path := regexp.MustCompile("`((?:" + strings.Join(directories(t), "|") + ")/[\\w./*-]+)`")
	for page, text := range read(t) {
		for _, m := range path.FindAllStringSubmatch(text, -1) {
			if found, err := filepath.Glob(filepath.Join(Root(), m[1])); err != nil || len(found) == 0 {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
		}
	}
}

func TestVariablesExist(t *testing.T) {
	known := []string{"NCCL_MESH_GID_INDEX"} // an older name
	for _, s := range config.Settings(func(string) string { return "" }) {
		known = append(known, s.Name)
	}
	name := regexp.MustCompile(`\bNCCL_MESH_[A-Z_]*[A-Z]`)
	for page, text := range read(t) {
		for _, m := range name.FindAllString(text, -1) {
			if !slices.Contains(known, m) {
				t.Errorf("%s names %s, which the plugin does not read", page, m)
			}
		}
	}
}

// The page of the protocol has each message of a session, by its number and name.
func TestMessagesAreListed(t *testing.T) {
	const page = "docs/internals/wire-protocol.md"
	_, text, _ := strings.Cut(read(t)[page], "## Messages of a session")
	text, _, _ = strings.Cut(text, "\n## ")
	var want, got []string
	for n := range 256 {
		if name := handshake.Type(n).String(); !strings.HasPrefix(name, "Type(") {
			want = append(want, fmt.Sprint(n, " ", name))
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| (\\d+) \\| `?([A-Z]\\w+)`? \\|.*\\|.*\\|$").FindAllStringSubmatch(text, -1) {
		got = append(got, m[1]+" "+m[2])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", page, diff)
	}
}

// The tests that pages name, as "transport/conn TestFlush", are there.
func TestNamedTestsAreThere(t *testing.T) {
	name := regexp.MustCompile(`\b([a-z0-9]+(?:/[a-z0-9]+)*) (Test[A-Z]\w*)\b`)
	found := 0
	for page, text := range read(t) {
		for _, m := range name.FindAllStringSubmatch(text, -1) {
			files, err := filepath.Glob(filepath.Join(Root(), m[1], "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			if len(files) == 0 {
				if strings.Contains(m[1], "/") { // else the word before is most likely no package
					t.Errorf("%s names %s of %s, which is no package with tests", page, m[2], m[1])
				}
				continue
			}
			found++
			there := slices.ContainsFunc(files, func(file string) bool {
				b, err := os.ReadFile(file)
				return err == nil && strings.Contains(string(b), "\nfunc "+m[2]+"(")
			})
			if !there {
				t.Errorf("%s names %s of %s, which is not there", page, m[2], m[1])
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d names of tests: the search is broken", found)
	}
}
