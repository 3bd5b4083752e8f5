package mesh

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What a failure does not need goes, and what it needs stays.
func TestShrink(t *testing.T) {
	text, err := Parse(scenarios(t, "text")["testdata/text/all.txt"])
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		needs func(s *Scenario) bool
		want  string
	}{
		"a fault and many messages": {func(s *Scenario) bool {
			return slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind == "cut" }) &&
				slices.ContainsFunc(s.Connections, func(c Connection) bool { return c.Messages > 50 })
		}, `machine na
machine nb
cable 0 na nb rdma 100Gbps
connect na nb 56 messages to 0B pauses 0% group 1
at 1.2s for 300ms cable 0 cut
expect end within 3m0s`},
		"a setting": {func(s *Scenario) bool { return s.Settings["NCCL_MESH_LANE_WAIT"] != "" }, `machine na
machine nb
set NCCL_MESH_LANE_WAIT=150
connect na nb 1 messages to 0B pauses 0% group 1
expect end within 3m0s`},
		"a death": {func(s *Scenario) bool { return slices.Contains(s.Expect.Deaths, "03") }, `machine na
machine nb
machine 03
connect na nb 1 messages to 0B pauses 0% group 1
at 3s machine 03 killed
expect death of 03
expect end within 3m0s`},
	} {
		s := text.clone()
		s.Connect(2, 1, Traffic(30, 1<<20))
		before, tries := s.String(), 0
		small := s.Shrink(func(s *Scenario) bool {
			tries++
			if err := s.Check(); err != nil {
				t.Errorf("%s: what is no scenario is tried: %v", name, err)
			}
			return c.needs(s)
		}, func(what string, kept bool, smallest *Scenario) {
			if !c.needs(smallest) {
				t.Errorf("%s: %s is said to be the smallest, and does not fail", name, what)
			}
		})
		got := strings.Join(strings.Split(small.String(), "\n")[len(s.Notes)+1:], "\n")
		if diff := cmp.Diff(c.want+"\n", got); diff != "" {
			t.Errorf("%s, after %d tries (-want +got):\n%s", name, tries, diff)
		}
		if diff := cmp.Diff(before, s.String()); diff != "" {
			t.Errorf("%s: the scenario that is made smaller changes: %s", name, diff)
		}
	}
}

// Failures of one cause have one class, and others have others.
func TestClass(t *testing.T) {
	class := func(failure string) string {
		o := &Outcome{Scenario: "seed 1\nmachine na\nmachine nb\n", Failed: true, Failures: []string{failure}}
		return o.Class()
	}
	broken := func(end, from, to, at, call, code string) string {
		return fmt.Sprintf("run: %s of %s to %s: at %s: %s.1: %s returned %s: %s.1 WARN NET/Mesh : words", end, from, to, at, from, call, code, from)
	}
	one := class(broken("sender", "na", "nb", "1.5s", "test", "ncclRemoteError"))
	if two := class(broken("receiver", "nb", "na", "17.000123ms", "test", "ncclRemoteError")); one != two {
		t.Errorf("%q and %q", one, two)
	}
	for _, other := range []string{broken("sender", "na", "nb", "1.5s", "test", "ncclSystemError"), broken("sender", "na", "nb", "1.5s", "isend", "ncclRemoteError"), "not healed 1m0s after the last fault: x", ""} {
		if got := class(other); got == one {
			t.Errorf("%q has the class %q too", other, got)
		}
	}
	if a, b := class("not healed 1m0s after the last fault: na.1 has no lane; more"), class("not healed 2m0s after the last fault: nb.1 has no lane"); a != b {
		t.Errorf("%q and %q", a, b)
	}
	if got := (&Outcome{}).Class(); got != "" {
		t.Errorf("a run that passes has the class %q", got)
	}
}
