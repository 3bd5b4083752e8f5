package fabric

import (
	"os"
	"path/filepath"
	"testing"
)

// What is made again is another file: who has a link to the one before keeps that until the next link.
func TestLink(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	file, at := filepath.Join(from, "a", "x.so"), filepath.Join(to, "a", "x.so")
	replace := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	want := func(text string) {
		t.Helper()
		if got, err := os.ReadFile(at); string(got) != text || err != nil {
			t.Errorf("%q, %v, want %q", got, err, text)
		}
	}
	replace("one")
	for range 2 {
		if err := link(from, to, "*/*.so"); err != nil {
			t.Fatal(err)
		}
		want("one")
	}
	replace("two")
	want("one")
	if err := link(from, to, "*/*.so"); err != nil {
		t.Fatal(err)
	}
	want("two")
}
