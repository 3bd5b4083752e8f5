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
	pages, err := PagesBelow(filepath.Join(Root(), "docs"))
	if err != nil {
		return nil, err
	}
	for i := range pages {
		pages[i] = filepath.Join("docs", pages[i])
	}
	for _, pattern := range []string{"*.md", "tests/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(Root(), pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			page, err := filepath.Rel(Root(), path)
			if err != nil {
				return nil, err
			}
			pages = append(pages, page)
		}
	}
	slices.Sort(pages)
	return pages, nil
}

// PagesBelow returns the paths, relative to dir, of all Markdown files in dir and in the directories below it.
func PagesBelow(dir string) (pages []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".md") {
			var page string
			page, err = filepath.Rel(dir, path)
			pages = append(pages, page)
		}
		return err
	})
	return pages, err
}
