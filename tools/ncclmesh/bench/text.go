package bench

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// WriteText writes the report for people, rates in Gb/s.
func (r *LinkReport) WriteText(w io.Writer) error {
	rows := [][]string{{"LINK", "OVER", "→", "←", "BOTH", "ALLOWED", "8 B µs", "p99 µs", "#wrong"}}
	for _, l := range r.Links {
		row := []string{l.Ends[0] + " – " + l.Ends[1], l.Over, "failed"}
		if l.Error == "" {
			allowed := "?"
			if l.Allowed > 0 {
				allowed = fmt.Sprintf("%.1f", l.Allowed)
			}
			row = append(row[:2], fmt.Sprintf("%.2f", l.Forth), fmt.Sprintf("%.2f", l.Back), fmt.Sprintf("%.2f", l.Both), allowed,
				fmt.Sprintf("%.1f", l.Median), fmt.Sprintf("%.1f", l.P99), fmt.Sprint(l.Wrong))
		}
		rows = append(rows, row)
	}
	var wide [9]int
	for _, row := range rows {
		for i, cell := range row {
			wide[i] = max(wide[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Gb/s of payload in messages of %s; allowed: what link and PCIe leave, one way; time of 8 bytes one way\n", size(r.Bytes))
	for _, row := range rows {
		for i, cell := range row {
			if i < 2 { // names begin at the left, figures end at the right
				fmt.Fprintf(&b, "%-*s  ", wide[i], cell)
			} else {
				fmt.Fprintf(&b, "%*s  ", wide[i], cell)
			}
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, strings.ReplaceAll(b.String(), "  \n", "\n"))
	return err
}

// size is a number of bytes for people.
func size(n int) string {
	switch {
	case n >= 1<<30 && n%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// WriteText writes the report under the columns of nccl-tests.
func (r *CollReport) WriteText(w io.Writer) error {
	lines := []string{header(r.Ranks)}
	kind := ""
	for _, row := range r.Rows {
		if row.Kind != kind {
			kind = row.Kind
			lines = append(lines, "# "+kind)
		}
		lines = append(lines, row.line())
	}
	_, err := fmt.Fprintf(w, "%s\n%s\n", strings.Join(lines, "\n"), r.summary())
	return err
}

// header are the columns.
func header(ranks []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %d ranks: %s; host memory, sums on the processor\n", len(ranks), strings.Join(ranks, ", "))
	fmt.Fprintf(&b, "#%13s %12s %8s %6s %5s %9s %7s %7s %6s\n", "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong")
	fmt.Fprintf(&b, "#%13s %12s %8s %6s %5s %9s %7s %7s", "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)")
	return b.String()
}

// line is the row under those columns.
func (r *CollRow) line() string {
	count, typ, redop := r.Bytes, "uint8", "none"
	if r.Kind == AllReduce {
		count, typ, redop = r.Bytes/4, "float", "sum"
	}
	return fmt.Sprintf("%14d %12d %8s %6s %5d %9s %7.2f %7.2f %6d", r.Bytes, count, typ, redop, -1, figure(r.Micros), r.Alg, r.Bus, r.Wrong)
}

// figure has the places that matter, as nccl-tests prints times.
func figure(micros float64) string {
	switch {
	case micros >= 10000:
		return fmt.Sprintf("%.0f", micros)
	case micros >= 100:
		return fmt.Sprintf("%.1f", micros)
	}
	return fmt.Sprintf("%.2f", micros)
}

// summary is what nccl-tests ends with.
func (r *CollReport) summary() string {
	sum, wrong := 0.0, int64(0)
	for _, w := range r.Rows {
		sum, wrong = sum+w.Bus, wrong+w.Wrong
	}
	verdict := "OK"
	if wrong > 0 {
		verdict = "FAILED"
	}
	return fmt.Sprintf("# Out of bounds values : %d %s\n# Avg bus bandwidth    : %.4g", wrong, verdict, sum/float64(max(len(r.Rows), 1)))
}
