package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"ncclmesh/tests/sim/mesh"
)

// A player plays scenarios with the tests of tests/sim/mesh, because virtual time exists in tests alone, and because a run that
// panics ends only its own process.
type player struct {
	dir, binary string
}

// build builds the tests from the module that the command runs in.
func build() (*player, error) {
	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		return nil, err
	}
	p := &player{dir, filepath.Join(dir, "mesh.test")}
	if out, err := exec.Command("go", "test", "-c", "-o", p.binary, "ncclmesh/tests/sim/mesh").CombinedOutput(); err != nil {
		p.close()
		return nil, fmt.Errorf("the simulation does not build: %w; run the command in the repository\n%s", err, out)
	}
	return p, nil
}

// close removes the files of the player.
func (p *player) close() { _ = os.RemoveAll(p.dir) }

// tests runs one test with options, and returns what it prints.
func (p *player) tests(test string, args ...string) (string, error) {
	out, err := exec.Command(p.binary, append([]string{"-test.run", "^" + test + "$", "-test.timeout", "1h"}, args...)...).CombinedOutput()
	return string(out), err
}

// draw returns the text of the scenario that a test draws from a seed.
func (p *player) draw(test string, seed uint64) (string, error) {
	if !regexp.MustCompile(`^Test\w+$`).MatchString(test) {
		return "", fmt.Errorf("%q is no name of a test: %s", test, p.known())
	}
	file := filepath.Join(p.dir, "drawn.txt")
	out, err := p.tests(test, "-seed", fmt.Sprint(seed), "-text", file)
	if err != nil {
		return "", fmt.Errorf("%s draws no scenario from seed %d: %w\n%s", test, seed, err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s does not draw scenarios from seeds: %s", test, p.known())
	}
	return string(text), nil
}

// known says which tests draw scenarios.
func (p *player) known() string {
	var all []string
	out, _ := exec.Command(p.binary, "-test.list", ".").Output()
	for _, name := range strings.Fields(string(out)) {
		if !strings.HasPrefix(name, "Test") {
			continue
		}
		file := filepath.Join(p.dir, "known.txt")
		if _, err := p.tests(name, "-text", file, "-seeds", "0"); err == nil && os.Remove(file) == nil {
			all = append(all, name)
		}
	}
	return "those that do are " + strings.Join(all, ", ")
}

var panicked = regexp.MustCompile(`(?m)^(panic: .*|fatal error: .*)$`)

// play plays a scenario.
func (p *player) play(s *mesh.Scenario) (*mesh.Outcome, error) {
	in, out := filepath.Join(p.dir, "scenario.txt"), filepath.Join(p.dir, "outcome.json")
	if err := os.WriteFile(in, []byte(s.String()), 0o644); err != nil {
		return nil, err
	}
	_ = os.Remove(out)
	text, failed := p.tests("TestScenario", "-scenario", in, "-outcome", out)
	o := &mesh.Outcome{Scenario: s.String(), Failed: true}
	b, err := os.ReadFile(out)
	if err != nil { // the process has ended before
		what := panicked.FindString(text)
		if what == "" {
			return nil, fmt.Errorf("the simulation has ended without an outcome: %w\n%s", failed, text)
		}
		o.Failures = []string{what + "\n" + text}
		return o, nil
	}
	if err := json.Unmarshal(b, o); err != nil {
		return nil, err
	}
	if o.Failed && len(o.Failures) == 0 { // the bubble has reported it, or the bus
		o.Failures = []string{text}
	}
	return o, nil
}
