package doctor_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/docs/checks"
	"ncclmesh/tools/ncclmesh/doctor"
	"ncclmesh/tools/ncclmesh/doctor/facts"
)

// root is the directory that stands for the machine's.
var root = regexp.MustCompile(`/\S*?/(ncclmesh-doctor-\d+|TestFindings[^/ ]*/\d{3})`)

var update = flag.Bool("update", false, "write what the checks say into testdata")

// Two nodes with nothing wrong pass every check: nothing is found, and nothing unknown.
func TestHealthy(t *testing.T) {
	t.Parallel()
	found, made := doctor.Judge(twoNodes(t, nil), doctor.Selection{})
	for _, f := range found {
		t.Errorf("%s %s %s: %s", f.Severity, f.Check, f.Where(), f.Evidence)
	}
	if len(made) != len(doctor.Checks) {
		t.Errorf("%d checks of %d were made", len(made), len(doctor.Checks))
	}
}

// judged is what one check says of a row, finding by finding, and the worst of it.
func judged(t *testing.T, r row) (lines []string, worst doctor.Severity) {
	t.Helper()
	m := twoNodes(t, r.machines)
	if r.mesh != nil {
		r.mesh(m)
	}
	proved(t, m)
	found, _ := doctor.Judge(m, doctor.Selection{Only: []string{r.check}})
	for i, f := range found {
		if i == 0 {
			worst = f.Severity
		}
		line := fmt.Sprintf("%s %s: %s", f.Severity, f.Where(), f.Evidence)
		if f.Remedy != "" {
			line += " | " + f.Remedy
		}
		if f.Cause != "" {
			line += " | because of " + f.Cause
		}
		lines = append(lines, line)
	}
	return lines, worst
}

// proved fails the test if a finding is hidden that is worse than its cause, or whose cause is hidden itself.
func proved(t *testing.T, m *facts.Mesh) {
	t.Helper()
	found, _ := doctor.Judge(m, doctor.Selection{})
	for _, f := range found {
		if f.Cause != "" && !slices.ContainsFunc(found, func(g doctor.Finding) bool {
			return g.Check == f.Cause && g.Cause == "" && (g.Severity == fail || g.Severity == warn && f.Severity != fail)
		}) {
			t.Errorf("%s %s %s (%s) is hidden by %s, which is not shown, or not as bad", f.Severity, f.Check, f.Where(), f.Evidence, f.Cause)
		}
	}
}

// Each check finds what is wrong, and says where nobody could look. What it says, word for
// word, stands in testdata/findings.txt; -update writes it.
func TestFindings(t *testing.T) {
	const golden = "testdata/findings.txt"
	said := make([]string, len(rows))
	t.Run("rows", func(t *testing.T) {
		for i, r := range rows {
			t.Run(r.check+"/"+r.name, func(t *testing.T) {
				t.Parallel()
				lines, worst := judged(t, r)
				if worst != r.want {
					t.Errorf("the worst is %q, want %q: %s", worst, r.want, lines)
				}
				said[i] = fmt.Sprintf("%s, %s\n", r.check, r.name)
				for _, line := range lines {
					said[i] += "\t" + line + "\n"
				}
			})
		}
	})
	got := root.ReplaceAllString(strings.Join(said, "\n"), "")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("run go test ./ncclmesh/doctor -update, and read what changed (-want +got):\n%s", diff)
	}
}

// Every check has a row in which it finds something, one in which it cannot tell, and a page;
// and every page its check. Of ssh-failed all is known.
func TestEveryCheckIsTestedAndExplained(t *testing.T) {
	t.Parallel()
	var ids []string
	for _, c := range doctor.Checks {
		ids = append(ids, c.ID)
		finds := slices.ContainsFunc(rows, func(r row) bool { return r.check == c.ID && r.want != unknown && r.want != "" })
		cannot := slices.ContainsFunc(rows, func(r row) bool { return r.check == c.ID && r.want == unknown })
		if !finds || !cannot && c.ID != "ssh-failed" {
			t.Errorf("%s has no row in which it finds something, or none in which it cannot tell", c.ID)
		}
		for _, after := range c.After {
			if !slices.Contains(ids[:len(ids)-1], after) {
				t.Errorf("%s comes after %s, which is no check before it", c.ID, after)
			}
		}
	}
	slices.Sort(ids)
	if diff := cmp.Diff(ids, checks.IDs()); diff != "" {
		t.Errorf("pages in docs/checks (-checks +pages):\n%s", diff)
	}
	for _, id := range checks.IDs() {
		page, _ := checks.Page(id)
		if !strings.HasPrefix(page, "# "+id+"\n") {
			t.Errorf("the page of %s does not begin with its id", id)
		}
		at := 0
		for _, section := range []string{"\n## Symptom\n", "\n## Evidence\n", "\n## Remedy\n", "\n## Source\n"} {
			i := strings.Index(page[at:], section)
			if i < 0 {
				t.Errorf("the page of %s lacks %q, or has it elsewhere", id, strings.TrimSpace(section))
				continue
			}
			at += i
		}
	}
}
