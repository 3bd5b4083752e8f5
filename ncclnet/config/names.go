package config

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

const prefix = "NCCL_MESH_"

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

// Unknown returns a line for every variable of an environment ("NAME=value") that is named as if it were one of this
// plugin's and is not read.
func Unknown(environ []string) []string {
	known := slices.DeleteFunc(names(), func(name string) bool { return !strings.HasPrefix(name, prefix) })
	var lines []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, prefix) || slices.Contains(known, name) {
			continue
		}
		nearest := slices.MinFunc(known, func(a, b string) int { return distance(name, a) - distance(name, b) })
		lines = append(lines, fmt.Sprintf("%s is not a setting of this plugin and has no effect; did you mean %s?", name, nearest))
	}
	return lines
}

// distance is how far a name that is not known is from one that is.
func distance(name, known string) int {
	if strings.HasPrefix(known, name) {
		return 1 // cut short
	}
	return editDistance(name, known)
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
