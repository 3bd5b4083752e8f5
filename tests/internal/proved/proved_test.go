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
	with := func(name string, want bool) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			if got := With(t, "Makefile", "src"); got != want {
				t.Errorf("With = %v", got)
			}
		})
	}
	with("nothing is recorded", false)
	t.Setenv("PROVED", "1")
	with("recorded behind this one", false)
	t.Setenv("PROVED", "")
	with("known", true)
	write("src/a.c", "int b;")
	with("a file has changed", false)
	t.Setenv("PROVED", "1")
	t.Run("left out", func(t *testing.T) {
		With(t, "Makefile", "src")
		t.SkipNow()
	})
	with("not recorded by a test that was left out", false)
	t.Setenv("PROVED", "")
	with("recorded by the one behind it", true)
	write("src/b.c", "")
	with("a file more", false)
}
