package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Ship writes the pages at the top and under docs, and the files that they link to there, into directory dir, as packages
// have them. A link to a file that is not written, such as source code, becomes its text and says where the file is.
func Ship(dir string) error {
	files, err := shipped()
	if err != nil {
		return err
	}
	there := map[string]bool{".": true}
	for _, file := range files {
		for at := file; at != "."; at = filepath.Dir(at) {
			there[at] = true
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(Root(), file))
		if err != nil {
			return err
		}
		if strings.HasSuffix(file, ".md") {
			text = []byte(unlink(file, string(text), there))
		}
		to := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// shipped returns the paths, relative to Root, of the files that packages have: everything under docs that is no Go, and
// the licence and the pages at the top.
func shipped() (files []string, err error) {
	top, err := filepath.Glob(filepath.Join(Root(), "*.md"))
	if err != nil {
		return nil, err
	}
	files = append(top, filepath.Join(Root(), "LICENSE"))
	err = filepath.WalkDir(filepath.Join(Root(), "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.HasSuffix(path, ".go") {
			files = append(files, path)
		}
		return err
	})
	for i := range files {
		if files[i], err = filepath.Rel(Root(), files[i]); err != nil {
			return nil, err
		}
	}
	return files, err
}

// unlink returns the text of a page without the links to files that are not there.
func unlink(page, text string, there map[string]bool) string {
	var b strings.Builder
	at := 0
	for _, l := range Links(text) {
		target := filepath.Join(filepath.Dir(page), l.File)
		if l.Web || l.File == "" || there[target] {
			continue
		}
		b.WriteString(text[at:l.Start])
		b.WriteString(l.Text)
		if strings.HasPrefix(target, l.Text) {
			b.WriteString(" (in the source)")
		} else {
			b.WriteString(" (" + target + " in the source)")
		}
		at = l.End
	}
	b.WriteString(text[at:])
	return b.String()
}
