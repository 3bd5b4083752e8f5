package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ncclmesh/tests/sim/mesh"
)

// What the command cannot do it refuses, and says what to do.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "there is no scenario: name a file, or a test and a seed, as in -test TestBusyCablesFail -seed 7"},
		{[]string{"-test", "TestBusyCablesFail"}, "there is no scenario: name a file, or a test and a seed, as in -test TestBusyCablesFail -seed 7"},
		{[]string{"-seed", "1", "-test", "TestBusyCablesFail", "x.txt"}, "a file and a seed are two scenarios: leave out the file, or -test and -seed"},
		{[]string{"x.txt", "-shrink"}, `["-shrink"] is too much: one scenario runs at a time, and options come before its file`},
		{[]string{"-seed", "many"}, `invalid value "many" for flag -seed: parse error; -help lists the options`},
	} {
		_, err := parse(c.args, new(bytes.Buffer))
		if err == nil || err.Error() != c.want {
			t.Errorf("%q: want %q, got %v", c.args, c.want, err)
		}
	}
}

// The help lists every option.
func TestHelp(t *testing.T) {
	var help bytes.Buffer
	if err := run([]string{"--help"}, new(bytes.Buffer), &help); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	for _, text := range []string{"-test NAME", "-seed N", "-shrink", "-text", "-o FILE", "FILE  "} {
		if !strings.Contains(help.String(), text) {
			t.Errorf("the help does not say %q:\n%s", text, &help)
		}
	}
}

// failing is a scenario that fails, because the only lanes are away for longer than they are waited for. The rest does not matter.
const failing = `seed 5
machine na
machine nb
machine nc
cable 0 na nb rdma 100Gbps
cable 1 na nb rdma 100Gbps
cable 2 nb nc rdma 100Gbps
management network
set NCCL_MESH_LANE_WAIT=2
set NCCL_MESH_TRANSPORT=rdma
connect na nb 60 messages to 64KiB
connect nb nc 60 messages to 64KiB
at traffic+10ms for 30s cable 0 cut
at traffic+20ms for 5ms cable 2 loss 10%
at traffic+30ms for 30s cable 1 cut
expect end within 1m0s
expect healed within 1m0s
`

// A scenario that fails is shown, and made smaller; what is left fails in the same way.
func TestFailingScenario(t *testing.T) {
	dir := t.TempDir()
	file, small := filepath.Join(dir, "failing.txt"), filepath.Join(dir, "small.txt")
	if err := os.WriteFile(file, []byte(failing), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run([]string{"-shrink", "-o", small, file}, &out, &out); !errors.Is(err, errFailed) {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, text := range []string{"* cable 0 cut begins", "FAILED: hash ", "no path to nb within 2.0", "still fails", "Next: go run ./tests/sim/cmd/sim " + small} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("the command does not say %q", text)
		}
	}
	text, err := os.ReadFile(small)
	if err != nil {
		t.Fatal(err)
	}
	s, err := mesh.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Machines) != 2 || len(s.Connections) != 1 || len(s.Cables) != 1 || len(s.Faults) != 1 || s.Management || s.Expect.Healed > 0 {
		t.Errorf("the smallest scenario is not small:\n%s", text)
	}
	if t.Failed() {
		t.Log(&out)
	}
}

// The scenario that a test draws from a seed is printed, and a test that draws none is refused.
func TestDrawn(t *testing.T) {
	var text bytes.Buffer
	if err := run([]string{"-text", "-test", "TestRDMACablesFail", "-seed", "3"}, &text, &text); err != nil {
		t.Fatal(err)
	}
	s, err := mesh.Parse(text.String())
	if err != nil || s.Seed != 3 || len(s.Faults) == 0 || s.String() != text.String() {
		t.Errorf("%v\n%s", err, &text)
	}
	err = run([]string{"-test", "TestNone", "-seed", "3"}, &text, &text)
	if err == nil || !strings.Contains(err.Error(), "those that do are TestBusyCablesFail, ") || strings.Contains(err.Error(), "TestSlowVerbs") {
		t.Errorf("the tests that draw scenarios are not listed: %v", err)
	}
}
