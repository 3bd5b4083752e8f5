package mesh

import (
	"os/exec"
	"strings"
	"sync"
)

// Commit returns the commit that is checked out, with a mark where files differ from it; "unknown" outside a repository.
var Commit = sync.OnceValue(func() string {
	commit, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	text := strings.TrimSpace(string(commit))
	if changed, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output(); err != nil || len(changed) > 0 {
		text += ", with changes"
	}
	return text
})
