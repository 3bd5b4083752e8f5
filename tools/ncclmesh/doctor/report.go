package doctor

import (
	"encoding/json"
	"io"
	"slices"
	"time"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/topo"
)

// Schema names the shape of a Report.
const Schema = "ncclmesh.doctor/1"

// A Report is the outcome of a run.
type Report struct {
	Schema   string           `json:"schema"`
	Nodes    []string         `json:"nodes"`
	Cables   int              `json:"cables"` // that were proved or heard at
	Halves   int              `json:"halves"` // of those cables, over which packets have passed in both directions
	Checks   []string         `json:"checks"` // that were made
	Seconds  float64          `json:"seconds"`
	Counts   map[Severity]int `json:"counts"` // of checks with such a finding that is shown
	Findings []Finding        `json:"findings"`

	Strict bool `json:"-"` // what could not be told counts as a finding
}

// NewReport judges a mesh.
func NewReport(m *facts.Mesh, s Selection, took time.Duration) *Report {
	found, made := Judge(m, s)
	cables, halves := 0, 0
	if proved, ok := m.Map.Get(); ok {
		cables = len(proved.Cables)
		for _, c := range proved.Cables {
			for _, h := range c.Halves {
				if h.State == topo.RDMA || h.State == topo.TCP {
					halves++
				}
			}
		}
	}
	r := &Report{
		Schema: Schema, Nodes: []string{}, Cables: cables, Halves: halves, Checks: made, Seconds: took.Seconds(),
		Counts: map[Severity]int{}, Findings: found,
	}
	if r.Findings == nil {
		r.Findings = []Finding{}
	}
	for _, n := range m.Nodes {
		r.Nodes = append(r.Nodes, n.Name)
	}
	for _, l := range m.Lost {
		r.Nodes = append(r.Nodes, l.Name)
	}
	type outcome struct {
		check string
		s     Severity
	}
	seen := map[outcome]bool{}
	for _, f := range found {
		if o := (outcome{f.Check, f.Severity}); f.Shown() && !seen[o] {
			seen[o] = true
			r.Counts[f.Severity]++
		}
	}
	return r
}

// Fine reports whether nothing was found: neither failures nor warnings nor, where that is
// asked for, anything that could not be told.
func (r *Report) Fine(strict bool) bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Shown() && (f.Severity == Fail || f.Severity == Warn || strict && f.Severity == Unknown)
	})
}

// WriteJSON writes the report for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}
