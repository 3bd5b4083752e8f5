package report

import (
	"bytes"
	"html/template"
	"strings"
	"testing"
	"time"
)

// What hosts say is text on the page, whatever it is, and pictures are pictures.
func TestPage(t *testing.T) {
	p := Page{
		Time: time.Unix(1_800_000_000, 0).UTC(), Build: "1.0", Nodes: []string{"a", "<b>"}, Verdict: "1 finding",
		Findings: []PageFinding{{Severity: "fail", Check: "port-down", Title: "\"nothing\"", Where: "a:<p0>", Evidence: "<script>alert(1)</script>", Remedy: "reseat"}},
		Cables:   &Picture{SVG: template.HTML("<svg></svg>")}, Rates: &Picture{Missing: "no & nothing"},
		Unknown: []PageFinding{{Severity: "unknown", Evidence: "needs root"}},
	}
	var b bytes.Buffer
	if err := p.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2027-01-15 08:00 UTC", "a, &lt;b&gt;", "&lt;script&gt;alert(1)", "a:&lt;p0&gt;", "<svg></svg>", "no &amp; nothing", `class="sev fail"`, "reseat", "<details><summary>"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	if strings.Contains(b.String(), "<script>") {
		t.Errorf("a program is in\n%s", &b)
	}
}
