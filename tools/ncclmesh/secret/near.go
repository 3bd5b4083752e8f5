package secret

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// An expression finds secrets near one of its keywords only: a search for words is quicker than one for an expression.
type expression struct {
	keywords [][]byte // in lower case; none where the expression is matched with all of a text
	re       *regexp.Regexp
}

// near returns an expression that is matched with lines that have one of some words, each with the line after it.
func near(words, re string) expression {
	return expression{keywordsOf(strings.Fields(words)), regexp.MustCompile(re)}
}

// keywordsOf returns words in lower case.
func keywordsOf(words []string) (list [][]byte) {
	for _, w := range words {
		list = append(list, []byte(strings.ToLower(w)))
	}
	return list
}

// all returns where in a text the expression and its groups match, as FindAllSubmatchIndex does. lower is the text in lower
// case.
func (e expression) all(text, lower []byte) [][]int {
	var list [][]int
	for _, w := range windows(lower, e.keywords) {
		for _, m := range e.re.FindAllSubmatchIndex(text[w.start:w.end], -1) {
			for i := range m {
				if m[i] >= 0 {
					m[i] += w.start
				}
			}
			list = append(list, m)
		}
	}
	return list
}

// A window is a part of a text.
type window struct{ start, end int }

// windows returns where in a text the lines with a keyword are, each with the line after it.
func windows(lower []byte, keywords [][]byte) []window {
	var list []window
	for _, k := range keywords {
		for from := 0; ; {
			i := bytes.Index(lower[from:], k)
			if i < 0 {
				break
			}
			i += from
			w := window{start: bytes.LastIndexByte(lower[:i], '\n') + 1, end: i}
			for range 2 {
				if n := bytes.IndexByte(lower[w.end:], '\n'); n >= 0 {
					w.end += n + 1
				} else {
					w.end = len(lower)
				}
			}
			list = append(list, w)
			from = w.end
		}
	}
	slices.SortFunc(list, func(a, b window) int { return a.start - b.start })
	var merged []window
	for _, w := range list {
		if n := len(merged) - 1; n >= 0 && w.start <= merged[n].end {
			merged[n].end = max(merged[n].end, w.end)
		} else {
			merged = append(merged, w)
		}
	}
	return merged
}

// lowered returns a text in lower case of ASCII, which has the same length.
func lowered(text []byte) []byte {
	lower := bytes.Clone(text)
	for i, c := range lower {
		if c >= 'A' && c <= 'Z' {
			lower[i] = c + 'a' - 'A'
		}
	}
	return lower
}
