package docs

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Root returns the directory of the repository.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../..")
}

// Pages returns the paths, relative to Root, of all Markdown files that people read: at the top, under docs, and the
// READMEs under tests. The list is sorted.
func Pages() ([]string, error) {
	var pages []string
	for _, pattern := range []string{"*.md", "tests/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(Root(), pattern))
		if err != nil {
			return nil, err
		}
		pages = append(pages, found...)
	}
	err := filepath.WalkDir(filepath.Join(Root(), "docs"), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".md") {
			pages = append(pages, path)
		}
		return err
	})
	for i := range pages {
		if pages[i], err = filepath.Rel(Root(), pages[i]); err != nil {
			return nil, err
		}
	}
	slices.Sort(pages)
	return pages, err
}
