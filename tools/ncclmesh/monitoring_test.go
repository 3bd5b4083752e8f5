package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"ncclmesh/tools/ncclmesh/status"
)

// queries returns the expressions of the alert rules and of the dashboard, by where they stand.
func queries(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(recipes, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if all[r.Alert] = r.Expr; r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s does not say what it is, and what to do", r.Alert)
			}
		}
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	text, err = os.ReadFile(filepath.Join(recipes, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	taken := map[[2]int]string{}
	variable := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*")
	for _, p := range dashboard.Panels {
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := taken[at]; other != "" || at[0] >= 24 {
					t.Errorf("%s lies over %q at %v", p.Title, other, at)
				}
				taken[at] = p.Title
			}
		}
		for _, target := range p.Targets {
			all[p.Title] = variable.Replace(target.Expr)
		}
	}
	return all
}

var metricName = regexp.MustCompile(`\bncclmesh_[a-z_]+`)

// Rules and dashboard ask for what ncclmesh metrics gives.
func TestMonitoringAsksForMetrics(t *testing.T) {
	all := queries(t)
	if len(all) < 15 {
		t.Errorf("there are only %d queries", len(all))
	}
	for where, query := range all {
		names := metricName.FindAllString(query, -1)
		if len(names) == 0 {
			t.Errorf("%s asks for nothing: %s", where, query)
		}
		for _, name := range names {
			if !slices.Contains(status.Metrics(), name) {
				t.Errorf("%s asks for %s, which is no metric", where, name)
			}
		}
	}
}

// Prometheus reads rules and queries, and the rules fire when they should.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool, of the package prometheus, is not installed; TestMonitoringAsksForMetrics looks at names")
	}
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var rules []rule
	for _, query := range queries(t) {
		rules = append(rules, rule{"ncclmesh:query", query})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", filepath.Join(recipes, "alerts.yaml")}, {"check", "rules", "--lint=none", file}, {"test", "rules", "testdata/alerts_test.yaml"}} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
