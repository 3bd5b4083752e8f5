package lab

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The package lists may be held by another apt for a while; any other failure is one at once.
func TestUpdate(t *testing.T) {
	tests := []struct {
		name, says string
		ok         bool
		calls      int
		told       string
	}{
		{"held", "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)", true, 3, "waiting for another apt: E: Could not get lock"},
		{"no network", "E: Failed to fetch", false, 1, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			calls := filepath.Join(dir, "calls")
			script := "#!/bin/sh\necho x >>" + calls + "\ntest $(wc -l <" + calls + ") = 3 && exit 0\necho '" + tt.says + "' >&2\nexit 100\n"
			if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			var told bytes.Buffer
			err := update(t.Context(), &Progress{w: &told, start: time.Now()}, time.Millisecond)
			if (err == nil) != tt.ok || !tt.ok && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error = %v", err)
			}
			if b, _ := os.ReadFile(calls); strings.Count(string(b), "x") != tt.calls {
				t.Errorf("%d calls, want %d", strings.Count(string(b), "x"), tt.calls)
			}
			if n := strings.Count(told.String(), "waiting"); !strings.Contains(told.String(), tt.told) || n != strings.Count(tt.told, "waiting") {
				t.Errorf("told %q, want %q once", &told, tt.told)
			}
		})
	}
}
