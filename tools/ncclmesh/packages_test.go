package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
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

// The script that lies with the packages installs what is for this machine, for a user alone without root.
func TestInstallForUser(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	for _, arch := range []string{"amd64", "arm64"} {
		top := filepath.Join(dir, "ncclmesh-1-linux-"+arch)
		if err := os.MkdirAll(filepath.Join(top, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(top, "bin/ncclmesh"), []byte(arch), 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("tar", "-C", dir, "-czf", top+".tar.gz", filepath.Base(top)).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	script, err := os.ReadFile("../packages/install")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "install"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args   []string
		status int
	}{{[]string{"--user"}, 0}, {[]string{"--system"}, 2}}
	for _, tt := range tests {
		cmd := exec.Command(filepath.Join(dir, "install"), tt.args...)
		cmd.Env = append(os.Environ(), "HOME="+home)
		if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != tt.status {
			t.Errorf("%v: %v\n%s", tt.args, err, out)
		}
	}
	if got, err := os.ReadFile(filepath.Join(home, ".local/bin/ncclmesh")); err != nil || string(got) != runtime.GOARCH {
		t.Errorf("it has installed %q, %v", got, err)
	}
}
