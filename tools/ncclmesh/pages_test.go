package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/ncclnet/config"
)

// manuals returns the manual pages of all commands by name, as the packages have them.
func manuals(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	if status := run(&system{[]string{"SOURCE_DATE_EPOCH=1793664000"}, &stdout, &stderr}, []string{"man", dir}); status != 0 {
		t.Fatalf("status %d: %s", status, &stderr)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(e.Name(), ".1")] = string(b)
	}
	return all
}

// section returns the lines of a section of a page, as a reader sees them.
func section(page, title string) string {
	_, rest, _ := strings.Cut(page, "\n.SH "+title+"\n")
	rest, _, _ = strings.Cut(rest, "\n.SH ")
	return strings.NewReplacer(`\fB`, "", `\fI`, "", `\fR`, "", `\-`, "-", `\(aq`, "'", `\(dq`, `"`, `\(ha`, "^", `\e`, `\`).Replace(rest)
}

// Every command that users see has a page, on which each flag has its argument, and which says what the statuses mean; the
// page of the root has the plugin's variables.
func TestManual(t *testing.T) {
	all := manuals(t)
	for _, want := range []struct{ page, section, words string }{
		{"ncclmesh-doctor", "OPTIONS", "--expect FILE\ncompare the cables with FILE: see ncclmesh topo"},
		{"ncclmesh-doctor", "OPTIONS", "--ignore ID\n"},
		{"ncclmesh-doctor", "OPTIONS", "--pid N\n"},
		{"ncclmesh-run", "OPTIONS", "--env NAME=VALUE\nset NAME=VALUE, or pass NAME on, for every process"},
		{"ncclmesh-bench-coll", "OPTIONS", "-b, --minbytes BYTES\nBYTES to begin with; K, M and G may follow (default 8)"},
		{"ncclmesh-topo", "DESCRIPTION", `FILE has a line for each cable, as "a:p0 b:p1"`},
		{"ncclmesh-topo", "ENVIRONMENT", "NCCLMESH_SSH\n"},
		{"ncclmesh-doctor", "EXIT STATUS", "1 if something was found, and 2 if nothing\ncould be checked"},
		{"ncclmesh-run", "EXIT STATUS", "that of the first process that failed"},
	} {
		if got := section(all[want.page], want.section); !strings.Contains(got, want.words) {
			t.Errorf("%s of %s has no %q:\n%s", want.section, want.page, want.words, got)
		}
	}
	var commands []string
	var walk func(prefix string, args ...string)
	walk = func(prefix string, args ...string) {
		commands = append(commands, prefix)
		var stdout, stderr bytes.Buffer
		run(&system{nil, &stdout, &stderr}, append(args, "--help"))
		_, list, _ := strings.Cut(stdout.String(), "Available Commands:\n")
		list, _, _ = strings.Cut(list, "\n\n")
		for line := range strings.Lines(list) {
			if strings.HasPrefix(line, "   ") {
				continue // of the line before
			}
			if name := strings.Fields(line)[0]; name != "completion" && name != "help" {
				walk(prefix+"-"+name, append(slices.Clone(args), name)...)
			}
		}
	}
	walk("ncclmesh")
	slices.Sort(commands)
	var have []string
	for name, page := range all {
		have = append(have, name)
		if s := section(page, "EXIT STATUS"); !strings.Contains(s, "status") {
			t.Errorf("%s does not explain its statuses: %q", name, s)
		}
		if strings.Contains(section(page, "DESCRIPTION"), "The status is") {
			t.Errorf("%s explains its statuses twice", name)
		}
	}
	slices.Sort(have)
	if diff := cmp.Diff(commands, have); diff != "" {
		t.Errorf("pages (-commands +pages):\n%s", diff)
	}
	variables := section(all["ncclmesh"], "ENVIRONMENT")
	for _, s := range config.Settings(func(string) string { return "" }) {
		if !strings.Contains(variables, ".TP\n"+s.Name+"\n") {
			t.Errorf("ncclmesh(1) does not list %s", s.Name)
		}
	}
}

// What the commands read of the environment is on a page.
func TestManualHasVariables(t *testing.T) {
	all := strings.Join(slices.Collect(maps.Values(manuals(t))), "\n")
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, file := range files {
		if file == "man.go" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`getenv\("([A-Z_]+)"\)`).FindAllStringSubmatch(string(b), -1) {
			seen++
			if !strings.Contains(all, m[1]) {
				t.Errorf("%s reads %s, which no page names", file, m[1])
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d variables are read", seen)
	}
}
