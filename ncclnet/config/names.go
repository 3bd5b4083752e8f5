package config

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// names are all variables that are read, older names just before the present ones.
func names() []string {
	var list []string
	for _, v := range variables {
		if old := older[v.Name]; old != "" {
			list = append(list, old)
		}
		list = append(list, v.Name)
	}
	return list
}

// Unknown returns a line for every variable of an environment ("NAME=value") that is named as if this plugin, or NCCL's
// own transports, read it, and that neither does.
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
		// A name of this plugin before one that it does not read, where both are as near.
		nearest := slices.MinFunc(slices.Concat(known, ofNCCL), func(a, b string) int { return distance(name, a) - distance(name, b) })
		lines = append(lines, fmt.Sprintf("%s is not a setting of %s and has no effect; did you mean %s?", name, readers, nearest))
	}
	return lines
}

// prefixOf returns which of prefixes a name has, or "".
func prefixOf(name string) string {
	for _, p := range prefixes {
		if strings.HasPrefix(name, p) {
			return p
		}
	}
	return ""
}

// distance is how far a name that is not known is from one that is. A wrong prefix counts as one wrong letter, because
// people know that a setting exists and not whose it is.
//
// Preconditions: both names have one of prefixes.
func distance(name, known string) int {
	prefix, other := prefixOf(name), prefixOf(known)
	rest, end := name[len(prefix):], known[len(other):]
	d := 2 * editDistance(rest, end)
	if rest != "" && rest != end && strings.HasPrefix(end, rest) {
		d = 2 // cut short
	}
	if prefix != other {
		d++
	}
	return d
}

// WriteTable writes the variables as the table that docs/configuration.md shows.
func WriteTable(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| Variable | Default | Unit | Meaning |\n|---|---|---|---|\n")
	for _, v := range variables {
		if old := older[v.Name]; old != "" {
			fmt.Fprintf(&b, "| `%s` | %s | %s | Older name of `%s`. |\n", old, v.Default, v.Unit, v.Name)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", v.Name, v.Default, v.Unit, v.Meaning)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// editDistance is the least number of letters to insert, delete or replace to
// turn a into b.
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
