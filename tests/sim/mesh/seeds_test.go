package mesh_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"testing"

	"ncclmesh/tests/sim/mesh"
)

var (
	first    = flag.Uint64("seed", 0, "first seed of the tests that take many; 0: one that the commit decides")
	seeds    = flag.Int("seeds", 4, "number of seeds of the tests that take many")
	text     = flag.String("text", "", "file to which the tests that take many write the scenario of the first seed, instead of playing it")
	scenario = flag.String("scenario", "", "file with the scenario that TestScenario plays")
	outcome  = flag.String("outcome", "", "file to which TestScenario writes the outcome, as JSON")
)

// firstSeed is where the seeds begin. Without the flag a commit decides, so that each has seeds of its own and is always
// green or always red; outside a repository it is 1.
func firstSeed() uint64 {
	if *first != 0 {
		return *first
	}
	commit, _, _ := strings.Cut(mesh.Commit(), ",")
	if commit == "unknown" {
		return 1
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(commit + "\n"))
	return 1 + h.Sum64()%1_000_000
}

// each plays the scenario that a generator draws from a seed, for each seed.
func each(t *testing.T, draw func(seed uint64) *mesh.Scenario) {
	if exchanging {
		connections := draw
		draw = func(seed uint64) *mesh.Scenario { return exchanged(connections(seed)) }
	}
	if *text != "" {
		if err := os.WriteFile(*text, []byte(draw(firstSeed()).String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for seed := firstSeed(); seed < firstSeed()+uint64(*seeds); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { mesh.Play(t, draw(seed)) })
	}
}

// drawsNone skips a test that draws no scenario from a seed where one is asked for.
func drawsNone(t *testing.T) {
	t.Helper()
	if *text != "" {
		t.Skip("draws no scenario from a seed")
	}
}

// The scenario of -scenario holds.
func TestScenario(t *testing.T) {
	drawsNone(t)
	if *scenario == "" {
		t.Skip("there is no -scenario")
	}
	text, err := os.ReadFile(*scenario)
	if err != nil {
		t.Fatal(err)
	}
	s, err := mesh.Parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", *scenario, err)
	}
	o, failed := play(t, s)
	if *outcome == "" {
		return
	}
	o.Failed = failed
	b, err := json.Marshal(o)
	if err == nil {
		err = os.WriteFile(*outcome, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// play plays a scenario in a test of its own, so that the caller goes on where it fails.
func play(t *testing.T, s *mesh.Scenario) (o *mesh.Outcome, failed bool) {
	o = &mesh.Outcome{}
	failed = !t.Run("play", func(t *testing.T) { mesh.PlayInto(t, s, o) })
	return o, failed
}
