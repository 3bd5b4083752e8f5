package rules

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tools/need installs what is missing, and waits while another apt is at work.
func TestNeed(t *testing.T) {
	const held = "E: Could not get lock /var/lib/apt/lists/lock."
	tests := []struct {
		name    string
		user    string
		update  string // what apt-get update says until it is asked for the third time
		needs   string
		said    string
		calls   []string
		refused bool
	}{
		{"nothing missing", "0", "", "sh:dash /:base", "", nil, false},
		{"missing", "0", "", "sh:dash no-such-tool:tool", "", []string{"-qq update", "-o DPkg::Lock::Timeout=900 install -y --no-install-recommends tool"}, false},
		{"held", "0", held, "/no/such:file", "waiting up to 900 s: " + held,
			[]string{"-qq update", "-qq update", "-qq update", "-o DPkg::Lock::Timeout=900 install -y --no-install-recommends file"}, false},
		{"no network", "0", "E: Failed to fetch", "/no/such:file", "E: Failed to fetch",
			[]string{"-qq update", "-o DPkg::Lock::Timeout=900 install -y --no-install-recommends file"}, false},
		{"not root", "1000", "", "no-such-tool:tool", "missing: install with  sudo apt-get install tool", nil, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			calls := filepath.Join(dir, "calls")
			for name, script := range map[string]string{
				"id":    "echo " + tt.user,
				"sleep": ":",
				"apt-get": `echo "$*" >>` + calls + `
					test "$2" = update || exit 0
					test "` + tt.update + `" || exit 0
					test $(wc -l <` + calls + `) = 3 && exit 0
					echo "` + tt.update + `"
					exit 100`,
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(filepath.Join(root(t), "tools/need"), strings.Fields(tt.needs)...)
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			said, err := cmd.CombinedOutput()
			if (err != nil) != tt.refused || strings.TrimSpace(string(said)) != tt.said {
				t.Errorf("%v: %q, want %q", err, said, tt.said)
			}
			var got []string
			if b, err := os.ReadFile(calls); err == nil {
				got = strings.Split(strings.TrimSpace(string(b)), "\n")
			}
			if diff := cmp.Diff(tt.calls, got); diff != "" {
				t.Errorf("apt-get (-want +got):\n%s", diff)
			}
		})
	}
}
