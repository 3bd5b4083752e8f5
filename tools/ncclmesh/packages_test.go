package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Who looks for a package reads in its description what the command does: each subcommand is named there. The package
// of the library says where to find out what is wrong.
func TestPackagesAreDescribed(t *testing.T) {
	description := func(file string) string {
		text, err := os.ReadFile("../packages/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var p struct{ Description string }
		if err := yaml.Unmarshal(text, &p); err != nil || p.Description == "" {
			t.Fatalf("%s: %v, description %q", file, err, p.Description)
		}
		return p.Description
	}
	names := func(text, command string) bool { return regexp.MustCompile(`\b` + command + `\b`).MatchString(text) }
	tool := strings.ReplaceAll(description("ncclmesh.yaml"), "ncclmesh", "")
	for _, c := range command(&system{}).Commands() {
		if c.IsAvailableCommand() && !names(tool, c.Name()) {
			t.Errorf("the description of the package ncclmesh does not mention %s", c.Name())
		}
	}
	for _, c := range []string{"doctor", "topo", "bench"} {
		if library := description("libnccl-net-mesh.yaml"); !names(library, c) {
			t.Errorf("the description of the package libnccl-net-mesh does not mention %s", c)
		}
	}
}
