package proved

import (
	"os"
	"testing"
)

// What a test has passed with is known until a file changes; a test that fails leaves it as it was.
func TestWith(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir("src", 0o700); err != nil {
		t.Fatal(err)
	}
	write("Makefile", "all:")
	write("src/a.c", "int a;")
	roots := []string{"Makefile", "src"}
	expect := func(what string, want bool) {
		t.Helper()
		t.Run(what, func(t *testing.T) {
			if got := with(t, "it", roots); got != want {
				t.Errorf("with = %v", got)
			}
		})
	}
	expect("nothing is recorded", false)
	t.Setenv("PROVED", "1")
	expect("recorded behind this one", false)
	t.Setenv("PROVED", "")
	expect("known", true)
	write("src/a.c", "int b;")
	expect("a file has changed", false)
	t.Setenv("PROVED", "1")
	t.Run("left out", func(t *testing.T) {
		with(t, "it", roots)
		t.SkipNow()
	})
	t.Run("another test", func(t *testing.T) { With(t, roots...) })
	expect("not recorded by a test that was left out", false)
	t.Setenv("PROVED", "")
	expect("recorded by the one behind it", true)
	write("src/b.c", "")
	expect("a file more", false)
}
