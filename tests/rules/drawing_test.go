package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// drawing returns the row in which each package stands in a drawing: lines that begin with │, whose last column is an
// explanation. known says whether a package of that path exists; one below transport is drawn by what follows that.
func drawing(t *testing.T, text string, known func(string) bool) map[string]int {
	t.Helper()
	rows, row := map[string]int{}, 0
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "│")
		if len(cells) < 3 || cells[0] != "" {
			continue
		}
		row++
		for _, name := range strings.Fields(strings.Join(cells[1:len(cells)-1], " ")) {
			if below := "transport/" + name; known(below) {
				name = below
			}
			if !known(name) {
				t.Errorf("the drawing has %s, which is no package", name)
			}
			if rows[name] > 0 {
				t.Errorf("the drawing has %s twice", name)
			}
			rows[name] = row
		}
	}
	return rows
}

// The drawing of the packages that ship has each of them, above all that it imports.
func TestDrawingOfPackages(t *testing.T) {
	const page = "docs/internals/architecture.md"
	text, err := os.ReadFile(filepath.Join(root(t), page))
	if err != nil {
		t.Fatal(err)
	}
	dirs := sources(t)
	ships := func(dir string) bool {
		return dirs[dir] != nil && !within(dir, []string{"tests", "tools", "docs", "internal"})
	}
	_, blocks, _ := strings.Cut(string(text), "\n## The packages\n")
	rows := drawing(t, strings.Split(blocks, "```")[1], ships)
	for dir, files := range dirs {
		if !ships(dir) {
			continue
		}
		if rows[dir] == 0 {
			t.Errorf("%s: the drawing does not have package %s: put it above what it imports, and below what imports it", page, dir)
		}
		for _, path := range files {
			if isTest(path) {
				continue
			}
			for _, spec := range parse(t, path).Imports {
				to, inside := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module+"/")
				if inside && ships(to) && rows[to] > 0 && rows[to] <= rows[dir] {
					t.Errorf("%s: the drawing has %s not below %s, which imports it (%s)", page, to, dir, filepath.Base(path))
				}
			}
		}
	}
}
