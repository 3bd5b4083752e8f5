package doctor_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tools/ncclmesh/doctor"
	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/topo"
)

// troubled are two nodes with something of every severity, and a third that told nothing.
func troubled(t *testing.T) *doctor.Report {
	m := twoNodes(t, func(a, b *machine) {
		a.down(h0)
		b.down(h2)
		a.bare(h1)
		b.env = append(b.env, "NCCL_IB_GID_INDEX=")
		for _, m := range []*machine{a, b} {
			m.link(halves[3].netdev).MTU = 1500
			m.drop("sys/class/dmi")
		}
	})
	m.Lost = []facts.Lost{{Name: "c", Error: "cannot be reached: Permission denied (publickey).", Next: "copy your key there: ssh-copy-id c"}}
	cable(m).Halves[0].State, cable(m).Why = topo.None, "enp1s0f0np0 of a is DOWN"
	noFlows(m)
	return doctor.NewReport(m, doctor.Selection{Ignore: []string{"gid-pinned-empty"}}, 2100*time.Millisecond)
}

// What people and programs read of a report stands in testdata; -update writes it.
func TestReport(t *testing.T) {
	t.Parallel()
	r := troubled(t)
	outputs := map[string]func(*bytes.Buffer) error{
		"report.txt":  func(b *bytes.Buffer) error { return r.WriteText(b, false, 80) },
		"colour.txt":  func(b *bytes.Buffer) error { return r.WriteText(b, true, 120) },
		"report.json": func(b *bytes.Buffer) error { return r.WriteJSON(b) },
		"report.xml":  func(b *bytes.Buffer) error { return r.WriteJUnit(b) },
	}
	for name, write := range outputs {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		got := root.ReplaceAllString(b.String(), "")
		golden := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s: run go test ./ncclmesh/doctor -update, and read what changed (-want +got):\n%s", name, diff)
		}
	}
}

// Lines are broken between words, and no line but that of a word without room for it is wider than it may be.
func TestWidth(t *testing.T) {
	t.Parallel()
	r := troubled(t)
	var words string
	for _, width := range []int{40, 60, 80, 100, 1000} {
		var b bytes.Buffer
		if err := r.WriteText(&b, false, width); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			line = strings.TrimRight(line, "\n")
			if n := utf8.RuneCountInString(line); n > width && strings.Contains(strings.TrimSpace(line), " ") && width >= 60 || strings.HasSuffix(line, " ") {
				t.Errorf("%d of %d columns: %q", n, width, line)
			}
		}
		if got := strings.Join(strings.Fields(b.String()), " "); words == "" {
			words = got
		} else if diff := cmp.Diff(words, got); diff != "" {
			t.Errorf("%d columns (-want +got):\n%s", width, diff)
		}
	}
}

// JUnit's counts are those of its cases.
func TestJUnitCounts(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := troubled(t).WriteJUnit(&b); err != nil {
		t.Fatal(err)
	}
	var suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
		Cases    []struct {
			Failure []struct{} `xml:"failure"`
			Skipped []struct{} `xml:"skipped"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal(b.Bytes(), &suite); err != nil {
		t.Fatal(err)
	}
	tests, failures, skipped := len(suite.Cases), 0, 0
	for _, c := range suite.Cases {
		failures += len(c.Failure)
		skipped += len(c.Skipped)
	}
	if suite.Tests != tests || suite.Failures != failures || suite.Skipped != skipped || failures == 0 || skipped == 0 || tests != len(doctor.Checks) {
		t.Errorf("counts %d, %d, %d; cases %d, %d, %d", suite.Tests, suite.Failures, suite.Skipped, tests, failures, skipped)
	}
}

// Failures and warnings count, unknowns where asked for, and what is ignored or explained never.
func TestFine(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		finding      doctor.Finding
		fine, strict bool
	}{
		{"failure", doctor.Finding{Severity: fail}, false, false},
		{"warning", doctor.Finding{Severity: warn}, false, false},
		{"unknown", doctor.Finding{Severity: unknown}, true, false},
		{"note", doctor.Finding{Severity: info}, true, true},
		{"ignored", doctor.Finding{Severity: fail, Ignored: true}, true, true},
		{"explained", doctor.Finding{Severity: fail, Cause: "port-down"}, true, true},
	}
	for _, tt := range tests {
		r := doctor.Report{Findings: []doctor.Finding{tt.finding}}
		if got := [2]bool{r.Fine(false), r.Fine(true)}; got != [2]bool{tt.fine, tt.strict} {
			t.Errorf("%s: fine %v", tt.name, got)
		}
	}
}

// Where nothing was found one line says so; what could not be looked at is listed where it counts.
func TestVerdict(t *testing.T) {
	t.Parallel()
	m := twoNodes(t, func(a, _ *machine) { a.drop("sys/class/dmi") })
	checks := fmt.Sprint(len(doctor.Checks))
	tests := []struct {
		name   string
		strict bool
		ignore []string
		want   string
	}{
		{"quiet", false, nil, "all is well: 2 nodes, 2 cables, 4 halves validated in 2.1 s\n1 of " + checks + " checks could not be made: --strict lists them\n"},
		{"strict", true, nil, "?    nic-unplugged  a  sysfs does not say which machine this is\n2 nodes, 2 cables, " + checks + " checks in 2.1 s: 1 unknown\n"},
		{"ignored", false, []string{"nic-unplugged"}, "all is well: 2 nodes, 2 cables, 4 halves validated in 2.1 s\n1 ignored\n"},
	}
	for _, tt := range tests {
		r := doctor.NewReport(m, doctor.Selection{Ignore: tt.ignore}, 2100*time.Millisecond)
		r.Strict = tt.strict
		var b bytes.Buffer
		if err := r.WriteText(&b, false, 80); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, b.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// One alone is told nothing of what compares nodes; a name that is no check's finds the one that is spelt nearly so, if there is one.
func TestSelection(t *testing.T) {
	t.Parallel()
	m := twoNodes(t, nil)
	m.Nodes = m.Nodes[:1]
	_, made := doctor.Judge(m, doctor.Selection{})
	several := 0
	for _, c := range doctor.Checks {
		if c.Several {
			several++
		}
	}
	if len(made) != len(doctor.Checks)-several {
		t.Errorf("%d checks of one node, want %d", len(made), len(doctor.Checks)-several)
	}
	for id, want := range map[string]string{"portdown": "port-down", "mtu": "mtu-small", "gid": "gid-none", "cable-slwo": "cable-slow", "nothing": "", "nothing-at-all": "", "p": "", "": ""} {
		if got := doctor.Nearest(id); got != want {
			t.Errorf("nearest to %q is %q, want %q", id, got, want)
		}
	}
}
