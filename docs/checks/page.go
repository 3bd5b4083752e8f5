package checks

import (
	"embed"
	"slices"
	"strings"
)

//go:embed *.md
var pages embed.FS

// Page is the text of a check's page, Markdown.
func Page(id string) (text string, ok bool) {
	if strings.ContainsAny(id, "/.") {
		return "", false
	}
	b, err := pages.ReadFile(id + ".md")
	return string(b), err == nil
}

// IDs are the checks that have a page, sorted.
func IDs() (ids []string) {
	entries, err := pages.ReadDir(".")
	if err != nil {
		panic(err) // of an embedded directory
	}
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".md"); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
