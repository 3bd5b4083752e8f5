package docs

import (
	"fmt"
	"strings"
)

// reasons not to run a block, each with why a test cannot.
var reasons = map[string]string{
	"container": "needs a container engine, a scheduler or software that is not installed",
	"hardware":  "needs a GPU",
	"job":       "needs a job that runs",
	"long":      "takes minutes, or installs packages",
	"root":      "changes this machine, or needs network namespaces or virtual machines",
	"tested":    "another test runs it",
	"two-nodes": "needs other hosts",
	"writes":    "writes into the working tree",
}

// A Fence is a fenced block of a page.
type Fence struct {
	Page   string // path of the page
	Line   int    // of the page, at which the block begins
	Lang   string // language of the text: "sh" for commands
	Reason string // why tests/docs does not run the block; "" if it does
	Text   string
}

// String returns where the block is, as PAGE:LINE.
func (f Fence) String() string { return fmt.Sprintf("%s:%d", f.Page, f.Line) }

// Fences returns the fenced blocks of a page that has the given text. The error names a fence that does not end, or whose
// reason is not known.
func Fences(page, text string) (blocks []Fence, err error) {
	var open *Fence
	for i, line := range strings.Split(text, "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			lang, reason, _ := strings.Cut(info, " not-run=")
			open = &Fence{Page: page, Line: i + 1, Lang: lang, Reason: reason}
			if strings.ContainsAny(lang, " =") || reason != "" && reasons[reason] == "" || strings.Contains(info, "not-run=") && reason == "" {
				return nil, fmt.Errorf("%v: fence %q: want a language, and after it nothing or not-run= with a reason of %v", open, info, reasons)
			}
		case fence && info == "":
			blocks = append(blocks, *open)
			open = nil
		case fence:
			return nil, fmt.Errorf("%s:%d: fence %q in the block of %v", page, i+1, info, open)
		case open != nil:
			open.Text += line + "\n"
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%v: the block does not end", open)
	}
	return blocks, nil
}
