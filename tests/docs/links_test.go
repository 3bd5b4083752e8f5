package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLinks(t *testing.T) {
	text := "[a `b`](c.md#d) ![e](f.svg)\n[g\nh](https://i/j#k) [l](#m) `[n](o)`\n```\n[p](q)\n```\n[r](s/)"
	var got []string
	for _, l := range Links(text) {
		if text[l.Start:l.End] == "" || !strings.HasSuffix(text[:l.End], ")") {
			t.Errorf("%+v is %q", l, text[l.Start:l.End])
		}
		got = append(got, l.Text+" "+l.File+" "+l.Fragment)
	}
	if diff := cmp.Diff([]string{"a `b` c.md d", "e f.svg ", "g\nh https://i/j#k ", "l  m", "r s/ "}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCheckLinks(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"a.md":      "# One two\n[b](sub/b.md#three) [itself](#one-two) [sub](sub) [web](https://nowhere.invalid/x)",
		"sub/b.md":  "# Three\n[a](../a.md)",
		"dead.md":   "[1](none.md)\n[2](a.md#three)",
		"escape.md": "[3](../escape.md)",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	linked, err := CheckLinks(root, []string{"a.md", "sub/b.md"})
	if diff := cmp.Diff(map[string]bool{"a.md": true, "sub": true, "sub/b.md": true}, linked); err != nil || diff != "" {
		t.Errorf("%v, linked (-want +got):\n%s", err, diff)
	}
	_, err = CheckLinks(root, []string{"dead.md", "escape.md"})
	if err == nil {
		t.Fatal("no error for dead links")
	}
	for _, want := range []string{"dead.md: link to none.md#", "dead.md: link to a.md#three: that page has no such heading", "escape.md: link to ../escape.md#: ../escape.md is outside"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not have %q:\n%v", want, err)
		}
	}
}

func TestUnlink(t *testing.T) {
	there := map[string]bool{"docs": true, "docs/a.md": true, "LICENSE": true}
	text := "[a](a.md#x) [licence](../LICENSE) [w](https://w) [h](#h) [tests/e](../tests/e/README.md), [a test](../tests/e/e_test.go#L1)."
	want := "[a](a.md#x) [licence](../LICENSE) [w](https://w) [h](#h) tests/e (in the source), a test (tests/e/e_test.go in the source)."
	if diff := cmp.Diff(want, unlink("docs/b.md", text, there)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What packages have is complete: each of its links has its target, and no page is empty.
func TestShip(t *testing.T) {
	dir := t.TempDir()
	if err := Ship(dir); err != nil {
		t.Fatal(err)
	}
	pages, err := PagesBelow(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 60 {
		t.Errorf("only %d pages: %v", len(pages), pages)
	}
	if _, err := CheckLinks(dir, pages); err != nil {
		t.Error(err)
	}
}
