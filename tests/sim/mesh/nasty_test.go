package mesh_test

import (
	"os"
	"testing"

	"ncclmesh/tests/sim/mesh"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if testing.Verbose() && *text == "" && *scenario == "" {
		_, _ = os.Stdout.WriteString("how often each fault has met each state:\n" + mesh.Met() + mesh.Operations())
	}
	os.Exit(code)
}

// Each kind of fault meets each state of a lane and of a session, and the job survives that, or ends as it must.
func TestEachFaultMeetsEachState(t *testing.T) {
	drawsNone(t)
	for name, s := range mesh.Encounters() {
		t.Run(name, func(t *testing.T) { mesh.Play(t, s) })
	}
	for _, c := range mesh.Missed() {
		t.Errorf("no fault %q has met %v %s", c.Kind, c.State, c.Carrier)
	}
	if t.Failed() {
		t.Log("\n" + mesh.Met())
	}
}
