package rules

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// onlyTested is what go.mod lists for tests alone.
var onlyTested = []string{"github.com/google/go-cmp"}

// Who packages the plugin reads in go.mod what is in it. What tools need stands in
// tools/go.mod.
func TestModuleListsWhatShips(t *testing.T) {
	goRun := func(args ...string) []byte {
		cmd := exec.Command("go", args...)
		cmd.Dir = root(t)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go %s: %v", strings.Join(args, " "), err)
		}
		return out
	}
	var file struct {
		Require []struct{ Path string }
		Tool    []struct{ Path string }
	}
	if err := json.Unmarshal(goRun("mod", "edit", "-json"), &file); err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, r := range file.Require {
		listed = append(listed, r.Path)
	}
	linked := strings.Fields(string(goRun("list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./capi")))
	linked = slices.DeleteFunc(append(linked, onlyTested...), func(path string) bool { return path == module })
	slices.Sort(listed)
	slices.Sort(linked)
	if diff := cmp.Diff(slices.Compact(linked), listed); diff != "" {
		t.Errorf("go.mod (-what is linked into the plugin, or tested with +listed):\n%s", diff)
	}
	if len(file.Tool) > 0 {
		t.Errorf("go.mod has tools %v; they belong in tools/go.mod", file.Tool)
	}
}
