package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

// results is what is kept.
type results struct {
	Machine machine  `json:"machine"`
	Base    string   `json:"base,omitempty"` // the commit that stands beside
	Figures []result `json:"figures"`
	Curves  []curve  `json:"curves,omitempty"`
}

// machine is where and when it was measured.
type machine struct {
	Time    time.Time `json:"time"`
	CPUs    int       `json:"cpus"`
	Ranks   []int     `json:"ranks"` // the processors they run on; where cost is measured all on the first
	Arch    string    `json:"arch"`
	Load    string    `json:"load"`     // of the minute before
	CopyMBs float64   `json:"copy_mbs"` // 1 MiB writes of the C loop
	Scale   float64   `json:"scale"`    // of modelled rates
	Runs    int       `json:"runs"`
}

func (m machine) String() string {
	s := fmt.Sprintf("%d processors (%s), ranks on %v, on %d where cost is measured; load %s before; copies %.0f MB/s; medians of %d pairs",
		m.CPUs, m.Arch, m.Ranks, m.Ranks[0], m.Load, m.CopyMBs, m.Runs)
	if m.Scale < 1 {
		s += fmt.Sprintf("\nmodelled rates are %g of the usual ones, to stay below an eighth of that", m.Scale)
	}
	return s
}

// A result is a figure with what was measured.
type result struct {
	Name    string  `json:"name"`
	About   string  `json:"about"`
	Limit   string  `json:"limit,omitempty"` // what that is, if not a C loop
	Unit    string  `json:"unit"`
	Value   float64 `json:"value"`
	Beside  float64 `json:"beside"` // the limit; with a base, the base's value
	Ratio   float64 `json:"ratio"`  // median of the pairs'
	Noise   float64 `json:"noise"`  // how far that may be off, as a part of it
	Others  float64 `json:"others"`
	AtLeast float64 `json:"at_least,omitempty"`
	AtMost  float64 `json:"at_most,omitempty"`
	Zero    bool    `json:"zero,omitempty"` // the value has to be 0
	Verdict verdict `json:"verdict,omitempty"`
	Runs    []pair  `json:"runs"`

	compared bool // with a base
}

// settle computes the medians, and what is to be said of them.
func (r *result) settle() {
	m := middle(r.Runs)
	r.Value, r.Beside, r.Ratio, r.Others = m.Value, m.Beside, m.Ratio, m.Others
	ratios := make([]float64, len(r.Runs))
	for i, p := range r.Runs {
		ratios[i] = p.Ratio
	}
	r.Noise = noise(ratios)
	r.Verdict = r.verdict()
}

// target says what the result has to be.
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

func (r result) line() string {
	if r.compared {
		return fmt.Sprintf("bench name=%s value=%.5g unit=%s base=%.5g ratio=%.3f noise=%s verdict=%s",
			r.Name, r.Value, r.Unit, r.Beside, r.Ratio, r.noise("%.3f", 1), cmp.Or(r.Verdict, "same"))
	}
	return fmt.Sprintf("bench name=%s value=%.5g unit=%s limit=%.5g ratio=%.3f noise=%s", r.Name, r.Value, r.Unit, r.Beside, r.Ratio, r.noise("%.3f", 1))
}

// noise is the noise as text; one pair tells nothing of it.
func (r result) noise(format string, times float64) string {
	if len(r.Runs) < 2 {
		return "?"
	}
	return fmt.Sprintf(format, times*r.Noise)
}

// print writes the table.
func (r results) print(w io.Writer) {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if r.Base != "" {
		fmt.Fprintln(t, "figure\tbase\tnew\tunit\tratio\tnoise\t\tothers\t")
	} else {
		fmt.Fprintln(t, "figure\tvalue\tlimit\tunit\tratio\tnoise\ttarget\t\tothers\t")
	}
	for _, f := range r.Figures {
		first, second, target := f.Value, f.Beside, f.target()+"\t"
		if f.compared {
			first, second, target = f.Beside, f.Value, ""
		}
		fmt.Fprintf(t, "%s\t%.5g\t%.5g\t%s\t%.3f\t%s\t%s%s\t%.0f %%\t\n", f.Name, first, second, f.Unit, f.Ratio, f.noise("± %.1f %%", 100), target, f.Verdict, 100*f.Others)
	}
	_ = t.Flush() // to a terminal
	fmt.Fprintln(w)
	for _, f := range r.Figures {
		about := f.About
		if f.Limit != "" && !f.compared {
			about += "; limit: " + f.Limit
		}
		fmt.Fprintf(w, "  %-22s %s\n", f.Name, about)
	}
	if r.Base != "" {
		r.conclude(w)
	}
}

// conclude says in a sentence what differs from the base.
func (r results) conclude(w io.Writer) {
	var changed []string
	loudest := result{}
	for _, f := range r.Figures {
		if f.Verdict != none {
			changed = append(changed, fmt.Sprintf("%s is %s, %+.1f %%", f.Name, f.Verdict, 100*(f.Ratio-1)))
		}
		if f.Noise >= loudest.Noise {
			loudest = f
		}
	}
	if changed == nil {
		changed = []string{"none"}
	}
	fmt.Fprintf(w, "\ndifferences from the base beyond the noise, or %.0f %%: %s\nmost noise: %s, ± %.1f %%\n",
		100*least, strings.Join(changed, "; "), loudest.Name, 100*loudest.Noise)
}

// worse names the figures that are worse than the base's.
func (r results) worse() []string {
	var names []string
	for _, f := range r.Figures {
		if f.Verdict == worse {
			names = append(names, f.Name)
		}
	}
	return names
}

// keep writes the results as JSON.
func (r results) keep(file string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if file == "-" {
		_, err := os.Stdout.Write(b)
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}
