package config

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// names returns all variables that are read, each older name before the present one.
func names() []string {
	var list []string
	for _, v := range variables {
		if old := oldNames[v.Name]; old != "" {
			list = append(list, old)
		}
		list = append(list, v.Name)
	}
	return list
}

// Unknown returns a line for every variable in an environment ("NAME=value") that has one of prefixes and that neither
// this plugin nor NCCL's own transports read.
func Unknown(environ []string) []string {
	known := slices.DeleteFunc(names(), func(name string) bool { return prefixOf(name) == "" })
	var lines []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		prefix := prefixOf(name)
		if prefix == "" || slices.Contains(known, name) || slices.Contains(ofNCCL, name) {
			continue
		}
		readers := "this plugin"
		if prefix != prefixes[0] {
			readers += " or of NCCL"
		}
		// Prefer a name of this plugin over one that it does not read, if both are equally near.
		nearest := slices.MinFunc(slices.Concat(known, ofNCCL), func(a, b string) int { return distance(name, a) - distance(name, b) })
		lines = append(lines, fmt.Sprintf("%s is not a setting of %s and has no effect; did you mean %s?", name, readers, nearest))
	}
	return lines
}

// prefixOf returns the element of prefixes that a name begins with, or "".
func prefixOf(name string) string {
	for _, p := range prefixes {
		if strings.HasPrefix(name, p) {
			return p
		}
	}
	return ""
}

// distance returns the distance between an unknown name and a known one. A wrong prefix counts as one wrong letter,
// because users often remember a setting without its prefix.
//
// Preconditions: both names have one of prefixes.
func distance(name, known string) int {
	prefix, other := prefixOf(name), prefixOf(known)
	rest, end := name[len(prefix):], known[len(other):]
	d := 2 * editDistance(rest, end)
	if rest != "" && rest != end && strings.HasPrefix(end, rest) {
		d = 2 // abbreviated
	}
	if prefix != other {
		d++
	}
	return d
}

// WriteTable writes the variables as the table in docs/configuration.md.
func WriteTable(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| Variable | Default | Unit | Meaning |\n|---|---|---|---|\n")
	for _, v := range variables {
		if old := oldNames[v.Name]; old != "" {
			fmt.Fprintf(&b, "| `%s` | %s | %s | Older name of `%s`. |\n", old, v.Default, v.Unit, v.Name)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", v.Name, v.Default, v.Unit, v.Meaning)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// editDistance returns the least number of letters to insert, delete or replace to turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
