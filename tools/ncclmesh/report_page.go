package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/tools/ncclmesh/bench"
	"ncclmesh/tools/ncclmesh/doctor"
	"ncclmesh/tools/ncclmesh/report"
	"ncclmesh/tools/ncclmesh/topo"
)

// pageName is the file of an archive that is for people.
const pageName = "page.html"

// pageOf makes the page of what the other commands have said in JSON: doctor, topo and bench link, of which the last two may be nil.
func pageOf(now time.Time, findings, cables, rates answer) ([]byte, error) {
	var r doctor.Report
	if err := findings.read(&r); err != nil {
		return nil, err
	}
	p := report.Page{Time: now, Build: handshake.Build(), Nodes: r.Nodes, Fine: r.Fine(false), Verdict: r.Verdict()}
	shown := 0
	for _, f := range r.Findings {
		if !f.Shown() {
			continue
		}
		if f.Severity == doctor.Fail || f.Severity == doctor.Warn {
			shown++
		}
		line := report.PageFinding{Severity: string(f.Severity), Check: f.Check, Title: title(f.Check, 200), Where: f.Where(), Evidence: f.Evidence, Remedy: f.Remedy}
		if f.Severity == doctor.Unknown {
			p.Unknown = merge(p.Unknown, line)
		} else {
			p.Findings = merge(p.Findings, line)
		}
	}
	if !p.Fine {
		p.Verdict = count(shown, "thing") + " to do something about"
	}
	if cables != nil {
		p.Cables = drawnFrom(cables, &topo.Map{})
	}
	if rates != nil {
		p.Rates = drawnFrom(rates, &bench.LinkReport{})
	}
	var b bytes.Buffer
	err := p.WriteHTML(&b)
	return b.Bytes(), err
}

// merge adds a line, or its place to that of a line that says the same.
func merge(all []report.PageFinding, line report.PageFinding) []report.PageFinding {
	for i := range all {
		same := all[i]
		if same.Where = line.Where; same == line {
			all[i].Where += ", " + line.Where
			return all
		}
	}
	return append(all, line)
}

// drawnFrom draws what a command has said.
func drawnFrom(said answer, into interface{ WriteSVG(io.Writer) error }) *report.Picture {
	err := said.read(into)
	var b strings.Builder
	if err == nil {
		err = into.WriteSVG(&b)
	}
	if err != nil {
		return &report.Picture{Missing: err.Error()}
	}
	return &report.Picture{SVG: template.HTML(b.String())}
}

// answer runs another command, once, and returns its JSON.
type answer func() ([]byte, error)

func (a answer) read(into any) error {
	text, err := a()
	if len(text) == 0 && err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	return nil
}

// source is the answer as a file of an archive.
func (a answer) source(name, holds string) report.Source {
	return report.Source{Name: name, Holds: holds, Read: func(context.Context) ([]byte, error) { return a() }}
}
