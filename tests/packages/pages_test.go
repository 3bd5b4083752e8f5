package packages

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/docs"
)

// unpack writes the files of a package into a new directory and returns it. It runs none of the package's scripts.
func unpack(t *testing.T, path string) string {
	t.Helper()
	root := t.TempDir()
	switch filepath.Ext(path) {
	case ".deb":
		command(t, "dpkg-deb", "--extract", path, root)
	case ".rpm":
		if err := shell(root, `rpm2archive - <"$1" | tar -xz`, path); err != nil {
			t.Fatal(err)
		}
	default:
		command(t, "tar", "-C", root, "-xzf", path)
	}
	return root
}

// Every package has all pages, and every link in them that is not to the web leads to a file of the same package.
func TestPages(t *testing.T) {
	want, err := docs.Pages()
	if err != nil {
		t.Fatal(err)
	}
	want = slices.DeleteFunc(want, func(page string) bool { return strings.HasPrefix(page, "tests/") })
	packages, err := filepath.Glob(filepath.Join(build(t), "packages/*"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(targets()) * perTarget; len(packages) != n {
		t.Fatalf("%d packages, want %d: %v", len(packages), n, packages)
	}
	for _, path := range packages {
		t.Run(filepath.Base(path), func(t *testing.T) {
			root := unpack(t, path)
			name := names[slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(filepath.Base(path), name) })]
			dir := filepath.Join(root, "usr/share/doc", name)
			if strings.HasSuffix(path, ".tar.gz") {
				dir = filepath.Join(root, strings.TrimSuffix(filepath.Base(path), ".tar.gz"), "share/doc", name)
			}
			pages, err := docs.PagesBelow(dir)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(pages)
			if diff := cmp.Diff(want, pages); diff != "" {
				t.Errorf("pages (-want +got):\n%s", diff)
			}
			if _, err := docs.CheckLinks(dir, pages); err != nil {
				t.Error(err)
			}
			for _, file := range []string{"LICENSE", "README.md", "docs/recipes/compose.yaml"} {
				if info, err := os.Stat(filepath.Join(dir, file)); err != nil || info.Mode().Perm() != 0o644 {
					t.Errorf("%s: %v, %v; want it readable by all", file, info, err)
				}
			}
		})
	}
}
