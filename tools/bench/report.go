package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// results is what is kept.
type results struct {
	Machine machine  `json:"machine"`
	Figures []result `json:"figures"`
	Curves  []curve  `json:"curves,omitempty"`
}

// machine is where and when it was measured.
type machine struct {
	Time    time.Time `json:"time"`
	CPUs    int       `json:"cpus"`
	Arch    string    `json:"arch"`
	Load    string    `json:"load"`     // of the minute before
	CopyMBs float64   `json:"copy_mbs"` // 1 MiB writes of the C loop
	Scale   float64   `json:"scale"`    // of modelled rates
	Runs    int       `json:"runs"`
}

func (m machine) String() string {
	s := fmt.Sprintf("%d processors (%s), load %s before; copies %.0f MB/s; medians of %d runs", m.CPUs, m.Arch, m.Load, m.CopyMBs, m.Runs)
	if m.Scale < 1 {
		s += fmt.Sprintf("\nmodelled rates are %g of the usual ones, to stay below an eighth of that", m.Scale)
	}
	return s
}

// A result is a figure with what was measured.
type result struct {
	Name    string  `json:"name"`
	About   string  `json:"about"`
	Unit    string  `json:"unit"`
	Value   float64 `json:"value"`
	Limit   float64 `json:"limit"`
	Ratio   float64 `json:"ratio"`  // median of the runs'
	Others  float64 `json:"others"` // likewise
	AtLeast float64 `json:"at_least,omitempty"`
	AtMost  float64 `json:"at_most,omitempty"`
	Zero    bool    `json:"zero,omitempty"` // the value has to be 0
	Runs    []pair  `json:"runs"`
}

// settle computes the medians.
func (r *result) settle() {
	r.Value = median(r.Runs, func(p pair) float64 { return p.Value })
	r.Limit = median(r.Runs, func(p pair) float64 { return p.Limit })
	r.Others = median(r.Runs, func(p pair) float64 { return p.Others })
	r.Ratio = median(r.Runs, func(p pair) float64 {
		if p.Limit == 0 {
			return 0
		}
		return p.Value / p.Limit
	})
}

func median(runs []pair, of func(pair) float64) float64 {
	all := make([]float64, len(runs))
	for i, p := range runs {
		all[i] = of(p)
	}
	return medianOf(all)
}

func medianOf(all []float64) float64 {
	slices.Sort(all)
	n := len(all)
	if n == 0 {
		return 0
	}
	return (all[(n-1)/2] + all[n/2]) / 2
}

// target says what the result has to be, and verdict whether it is.
func (r result) target() string {
	switch {
	case r.AtLeast > 0:
		return fmt.Sprintf(">= %.2f", r.AtLeast)
	case r.AtMost > 0:
		return fmt.Sprintf("<= %.2f", r.AtMost)
	case r.Zero:
		return "0"
	}
	return ""
}

func (r result) verdict() string {
	switch {
	case r.target() == "":
		return ""
	case r.AtLeast > 0 && r.Ratio < r.AtLeast, r.AtMost > 0 && r.Ratio > r.AtMost, r.Zero && r.Value != 0:
		return "missed"
	}
	return "met"
}

func (r result) line() string {
	return fmt.Sprintf("bench name=%s value=%.5g unit=%s limit=%.5g ratio=%.3f", r.Name, r.Value, r.Unit, r.Limit, r.Ratio)
}

// print writes the table.
func (r results) print(w io.Writer) {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "figure\tvalue\tlimit\tunit\tratio\ttarget\t\tothers\t")
	for _, f := range r.Figures {
		fmt.Fprintf(t, "%s\t%.5g\t%.5g\t%s\t%.3f\t%s\t%s\t%.0f %%\t\n", f.Name, f.Value, f.Limit, f.Unit, f.Ratio, f.target(), f.verdict(), 100*f.Others)
	}
	_ = t.Flush() // to a terminal
	fmt.Fprintln(w)
	for _, f := range r.Figures {
		fmt.Fprintf(w, "  %-22s %s\n", f.Name, f.About)
	}
}

// keep writes the results as JSON.
func (r results) keep(file string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}
