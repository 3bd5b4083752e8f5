package netdriver

import (
	"crypto/sha256"
	"os/exec"
	"strings"
	"testing"
)

// commit returns a number that is the commit's own: what a test chooses by it, it chooses again at the same
// commit. It is 0 outside of a repository.
func commit(t *testing.T) uint8 {
	t.Helper()
	out, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return 0
	}
	return sha256.Sum256([]byte(strings.TrimSpace(string(out))))[0]
}
