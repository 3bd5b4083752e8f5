package docs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// A Link is a link or an image of a page.
type Link struct {
	Start, End int    // bytes of the page that are the link
	Text       string // what is shown
	File       string // path of the target as the page writes it; "" for the page itself
	Fragment   string // heading of the target; "" for its beginning
	Web        bool   // the target is an address on the web, and File is it
}

var (
	code = regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`")
	link = regexp.MustCompile(`!?\[([^\[\]]*)\]\(([^)\s]+)\)`)
)

// Links returns the links of a page that has the given text, without those in code.
func Links(text string) (links []Link) {
	masked := code.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("_", len(s)) })
	for _, m := range link.FindAllStringSubmatchIndex(masked, -1) {
		l := Link{Start: m[0], End: m[1], Text: text[m[2]:m[3]], File: text[m[4]:m[5]]}
		if l.Web = strings.Contains(l.File, "://"); !l.Web {
			l.File, l.Fragment, _ = strings.Cut(l.File, "#")
		}
		links = append(links, l)
	}
	return links
}

// anchors returns the fragments by which a page's headings can be linked.
func anchors(text string) (list []string) {
	text = regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(text, "")
	for _, m := range regexp.MustCompile(`(?m)^#+ +(.*?) *$`).FindAllStringSubmatch(text, -1) {
		list = append(list, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, m[1]))
	}
	return list
}

// CheckLinks looks for the targets of the links of pages, whose paths are relative to root. It returns the paths that the
// pages link to, and an error that names every link without a target below root.
func CheckLinks(root string, pages []string) (linked map[string]bool, err error) {
	linked = map[string]bool{}
	var dead []error
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			return nil, err
		}
		for _, l := range Links(string(text)) {
			if l.Web {
				continue
			}
			target := page
			if l.File != "" {
				target = filepath.Join(filepath.Dir(page), l.File)
			}
			if err := findTarget(root, target, l.Fragment); err != nil {
				dead = append(dead, fmt.Errorf("%s: link to %s#%s: %w", page, l.File, l.Fragment, err))
				continue
			}
			linked[target] = true
		}
	}
	return linked, errors.Join(dead...)
}

// findTarget returns an error if target, relative to root, is not there or has no heading for the fragment.
func findTarget(root, target, fragment string) error {
	if !filepath.IsLocal(target) {
		return fmt.Errorf("%s is outside", target)
	}
	path := filepath.Join(root, target)
	if _, err := os.Stat(path); err != nil || fragment == "" {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if list := anchors(string(text)); !slices.Contains(list, fragment) {
		return fmt.Errorf("that page has no such heading; it has %v", list)
	}
	return nil
}
