package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A word must not stand in text for users. The list is testdata/words.txt.
type word struct {
	pattern *regexp.Regexp
	use     string
	except  *regexp.Regexp // phrases with the word that are plain; nil where there are none
}

// find returns the word as it stands in a text, "" if it does not.
func (w word) find(text string) string {
	if w.except != nil {
		text = w.except.ReplaceAllString(text, "")
	}
	return w.pattern.FindString(text)
}

// words reads the list: on each line a regular expression for a whole word, what to write instead, and phrases that are
// plain all the same, with tabs between them.
func words(t *testing.T) (list []word) {
	t.Helper()
	text, err := os.ReadFile("testdata/words.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := append(strings.Split(strings.TrimSuffix(line, "\n"), "\t"), "")
		w := word{pattern: regexp.MustCompile(`(?i)\b(?:` + f[0] + `)\b`), use: f[1]}
		if f[2] != "" {
			w.except = regexp.MustCompile(`(?i)\b(?:` + f[2] + `)\b`)
		}
		list = append(list, w)
	}
	if len(list) < 10 {
		t.Fatalf("only %d words", len(list))
	}
	return list
}

// readers are the directories of which users read the text: log lines, errors, findings, help.
var readers = []string{"capi", "comm", "guard", "handshake", "ibv", "ncclnet", "tools/ncclmesh", "transport", "tuner"}

// notText matches strings that no user reads: labels of keys in the protocol, and the parts of a drawing.
var notText = regexp.MustCompile(`^ncclmesh hail$|\{stroke:|<line class=`)

// literals returns the strings of a file that are text: those with a space in them.
func literals(fset *token.FileSet, f *ast.File) map[token.Pos]string {
	text := map[token.Pos]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			n.Tag = nil
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil && strings.Contains(s, " ") {
				text[n.Pos()] = s
			}
		}
		return true
	})
	return text
}

func TestTextIsPlain(t *testing.T) {
	list, top, count := words(t), root(t), 0
	for dir, files := range sources(t) {
		if !within(dir, readers) {
			continue
		}
		for _, path := range files {
			if isTest(path) || strings.HasPrefix(filepath.Base(path), "z") {
				continue
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for pos, text := range literals(fset, f) {
				count++
				for _, problem := range problems(list, text) {
					t.Errorf("%v: %q: %s", strings.TrimPrefix(fset.Position(pos).String(), top+"/"), text, problem)
				}
			}
		}
	}
	if count < 1000 {
		t.Errorf("only %d texts were looked at", count)
	}
}

// dialect matches words that comments had in the place of the field's own, which the glossary gives.
var dialect = regexp.MustCompile(`(?i)\b(?:bundles?|trials?|heeds?|heeded|mends?|mended|glances?|glimpses?|dark|lit|stash|stashed|brisk|owes?|owed|` +
	`door|ear|mouth|deaf|mute|hush|(?:is|are|has) no more|needed no more)\b`)

// Comments of the plugin's own code have none of the words that only this project used.
func TestCommentsArePlain(t *testing.T) {
	top, count := root(t), 0
	for dir, files := range sources(t) {
		if !within(dir, []string{"capi", "comm", "guard", "handshake", "ibv", "ncclnet", "random", "transport", "tuner"}) {
			continue
		}
		for _, path := range files {
			if isTest(path) || strings.HasPrefix(filepath.Base(path), "z") {
				continue
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, group := range f.Comments {
				for _, c := range group.List {
					count++
					if word := dialect.FindString(c.Text); word != "" {
						t.Errorf("%s: do not say %q; docs/internals/glossary.md has the field's word", strings.TrimPrefix(fset.Position(c.Pos()).String(), top+"/"), word)
					}
				}
			}
		}
	}
	if count < 1000 {
		t.Errorf("only %d comments were looked at", count)
	}
}

// problems says which words of the list a text has.
func problems(list []word, text string) (found []string) {
	if notText.MatchString(text) {
		return nil
	}
	for _, w := range list {
		if s := w.find(text); s != "" {
			found = append(found, fmt.Sprintf("do not say %q, but: %s", s, w.use))
		}
	}
	return found
}

// within reports whether a directory is one of those, or below one.
func within(dir string, of []string) bool {
	for _, d := range of {
		if dir == d || strings.HasPrefix(dir, d+"/") {
			return true
		}
	}
	return false
}

// Pages that people read have none of the words either, outside code.
func TestPagesArePlain(t *testing.T) {
	list, top := words(t), root(t)
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/checks/*.md", "docs/recipes/*.md", "docs/internals/*.md"} {
		found, err := filepath.Glob(filepath.Join(top, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	if len(pages) < 60 {
		t.Fatalf("only %d pages", len(pages))
	}
	code := regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`|\\]\\([^)\n]*\\)")
	table := regexp.MustCompile(`(?s)<!-- words:begin -->.*?<!-- words:end -->`)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		plain := code.ReplaceAllStringFunc(table.ReplaceAllString(string(text), ""), func(s string) string {
			return strings.Repeat("\n", strings.Count(s, "\n"))
		})
		for i, line := range strings.Split(plain, "\n") {
			for _, problem := range problems(list, line) {
				t.Errorf("%s:%d: %s", strings.TrimPrefix(page, top+"/"), i+1, problem)
			}
		}
	}
}

func TestProblems(t *testing.T) {
	list := []word{
		{regexp.MustCompile(`(?i)\b(?:ways?)\b`), "path", regexp.MustCompile(`(?i)\b(?:one way|in the way)\b`)},
		{regexp.MustCompile(`(?i)\b(?:told)\b`), "notified", nil},
	}
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"a way to b", []string{`do not say "way", but: path`}},
		{"Ways, and told", []string{`do not say "Ways", but: path`, `do not say "told", but: notified`}},
		{"8 bytes one way", nil},
		{"one way, and another way", []string{`do not say "way", but: path`}},
		{"always", nil},
	} {
		if diff := cmp.Diff(tt.want, problems(list, tt.text)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.text, diff)
		}
	}
}
