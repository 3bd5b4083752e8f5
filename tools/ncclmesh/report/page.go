package report

import (
	_ "embed"
	"html/template"
	"io"
	"time"
)

// A Page is what a report says for people, in one file without others.
type Page struct {
	Time     time.Time
	Build    string
	Nodes    []string
	Verdict  string
	Fine     bool
	Cables   *Picture // nil: none was asked for
	Findings []PageFinding
	Unknown  []PageFinding // what could not be looked at
	Rates    *Picture      // nil: none was asked for
}

// A PageFinding is a line of the table of findings.
type PageFinding struct{ Severity, Check, Title, Where, Evidence, Remedy string }

// A Picture is one of a page, or why there is none.
type Picture struct {
	SVG     template.HTML // that this program has drawn, with all foreign text in it escaped
	Missing string
}

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// WriteHTML writes the page.
func (p *Page) WriteHTML(w io.Writer) error { return pageTemplate.Execute(w, p) }
