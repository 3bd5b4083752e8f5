package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Marks after a rate that is below what is allowed: for another reason than other programs, or perhaps for that one.
const (
	mark    = "↓"
	unclear = "~"
)

// rate is one of the link for people, marked where it is too low.
func (l *Link) rate(name string, gbits float64) string {
	switch {
	case slices.Contains(l.Below, name):
		return fmt.Sprintf("%.2f%s", gbits, mark)
	case l.crowded() && slices.Contains(l.low(), name):
		return fmt.Sprintf("%.2f%s", gbits, unclear)
	}
	return fmt.Sprintf("%.2f", gbits)
}

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
			row = append(row[:2], l.rate("forth", l.Forth), l.rate("back", l.Back), l.rate("both", l.Both), allowed,
				fmt.Sprintf("%.1f", l.Median), fmt.Sprintf("%.1f", l.P99), fmt.Sprint(l.Wrong))
		}
		rows = append(rows, row)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Gb/s of payload in messages of %s; the time of 8 bytes is one way\n# ALLOWED is what link and PCIe leave, one way\n", size(r.Bytes))
	if slices.ContainsFunc(r.Links, func(l Link) bool { return l.crowded() && len(l.low()) > 0 }) {
		fmt.Fprintf(&b, "# %s is low while other programs took the processors: it says nothing of a cable\n", unclear)
	}
	text := table(rows, 2, "  ")
	if wide, _, _ := strings.Cut(text, "\n"); utf8.RuneCountInString(wide) > screen {
		text = table(grouped(rows), 1, " ")
	}
	b.WriteString(text)
	_, err := io.WriteString(w, b.String())
	return err
}

// screen is how many columns a table has at most, if it can.
const screen = 80

// grouped puts what the rows of one link have in common into a row of its own.
func grouped(rows [][]string) (all [][]string) {
	at := ""
	for i, row := range rows {
		switch {
		case i == 0:
			all = append(all, append([]string{row[0] + ", " + row[1]}, row[2:]...))
			continue
		case row[0] != at:
			at = row[0]
			all = append(all, []string{at})
		}
		all = append(all, append([]string{"  " + row[1]}, row[2:]...))
	}
	return all
}

// table puts cells under each other. The first columns, which are names, begin at the left, and figures end at the right. What
// stands in a row alone may be wider than its column.
func table(rows [][]string, names int, gap string) string {
	var wide []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(wide) {
				wide = append(wide, 0)
			}
			if len(row) > 1 {
				wide[i] = max(wide[i], utf8.RuneCountInString(cell))
			}
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString(gap)
			}
			if i < names {
				fmt.Fprintf(&line, "%-*s", wide[i], cell)
			} else {
				fmt.Fprintf(&line, "%*s", wide[i], cell)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
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
	_, err := fmt.Fprintf(w, "%s\n%s", strings.Join(lines, "\n"), r.summary())
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
	return ending(wrong, sum/float64(max(len(r.Rows), 1)))
}

// WriteText writes the report under the columns of nccl-tests.
func (r *NCCLReport) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "# %s\n", note)
	}
	for i, gpu := range r.Ranks {
		network := "NCCL's choice"
		if gpu.Network != "" {
			network = gpu.Network
		}
		fmt.Fprintf(&b, "#  Rank %2d on %10s: %s, NCCL %s, network %s\n", i, gpu.Host, gpu.Name, gpu.NCCL, network)
	}
	fmt.Fprintf(&b, "#\n#%54s%29s%34s\n", "", "out-of-place", "in-place")
	fmt.Fprintf(&b, "#%11s %13s %9s %7s %7s", "size", "count", "type", "redop", "root")
	for range 2 {
		fmt.Fprintf(&b, " %8s %7s %7s %6s", "time", "algbw", "busbw", "#wrong")
	}
	fmt.Fprintf(&b, "\n#%11s %13s %9s %7s %7s", "(B)", "(elements)", "", "", "")
	fmt.Fprintf(&b, " %8s %7s %7s %6s %8s %7s %7s\n", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)")
	kind := ""
	for _, row := range r.Rows {
		if row.Kind != kind {
			kind = row.Kind
			b.WriteString("# " + kind + "\n")
		}
		b.WriteString(row.line() + "\n")
	}
	b.WriteString(r.summary())
	_, err := io.WriteString(w, b.String())
	return err
}

// line is the row under those columns.
func (r *NCCLRow) line() string {
	redop, from := "none", -1
	switch r.Kind {
	case AllReduce, ReduceScatter:
		redop = "sum"
	case Broadcast:
		from = root
	}
	line := fmt.Sprintf("%12d %13d %9s %7s %7d", r.Bytes, r.Count, "float", redop, from)
	for _, f := range []Figures{r.OutPlace, r.InPlace} {
		line += fmt.Sprintf(" %8s %7.2f %7.2f %6d", figure(f.Micros), f.Alg, f.Bus, f.Wrong)
	}
	return line
}

// summary is what nccl-tests ends with.
func (r *NCCLReport) summary() string {
	sum, wrong := 0.0, int64(0)
	for _, w := range r.Rows {
		sum += w.OutPlace.Bus + w.InPlace.Bus
		wrong += w.OutPlace.Wrong + w.InPlace.Wrong
	}
	return ending(wrong, sum/float64(max(2*len(r.Rows), 1)))
}

// ending are the last two lines of nccl-tests.
func ending(wrong int64, bus float64) string {
	verdict := "OK"
	if wrong > 0 {
		verdict = "FAILED"
	}
	return fmt.Sprintf("# Out of bounds values : %d %s\n# Avg bus bandwidth    : %.4g\n", wrong, verdict, bus)
}
