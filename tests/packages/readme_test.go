package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/docs"
	"ncclmesh/tests/internal/proved"
	"ncclmesh/tests/require"
)

// elsewhere are the README's commands that cannot run in a clean clone, with the reason. All others do.
var elsewhere = map[string]string{
	packagesCommand:                     "build runs it, for all tests of this package",
	"make demo LANES=nccl":              "tests/nccl does it",
	"make demo LANES=lab":               "tests/lab does it",
	"ncclmesh up node-a node-b":         "it names hosts",
	"ncclmesh bench nccl node-a node-b": "it names hosts",
	"ncclmesh doctor node-a node-b":     "it names hosts",
	"ncclmesh topo node-a node-b":       "it names hosts",
	"ncclmesh run node-a node-b --env NCCL_DEBUG=INFO -- python3 train.py": "it names hosts",
	"ncclmesh relay --key-file ~/.ncclmesh-key":                            "it runs until it is stopped",
	"ncclmesh status": "it needs a running job",
	"ncclmesh report": "it writes into the clone; the command's own tests do it",
}

// packagesCommand is how the README makes packages.
const packagesCommand = "make dist"

var comment = regexp.MustCompile(` +# .*$`)

// readmeCommands returns the lines of the README's shell blocks, without comments.
func readmeCommands(t *testing.T, readme string) []string {
	t.Helper()
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := docs.Fences(filepath.Base(readme), string(text))
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, block := range blocks {
		if block.Lang != "sh" {
			continue
		}
		for line := range strings.Lines(block.Text) {
			if line = comment.ReplaceAllString(strings.TrimSpace(line), ""); line != "" {
				commands = append(commands, line)
			}
		}
	}
	return commands
}

// The README's commands run one after another, as they are written, in one shell and a clean clone. The file "proved" names the README that has
// passed, and is written by `FULL=1 PROVED=1 go test -run 'TestReadme$' ./tests/packages`.
func TestReadme(t *testing.T) {
	if proved.With(t, "../../README.md", "../../Makefile", "readme_test.go") {
		require.Full(t, "tests/fabric/cmd/demo TestDemo, tests/docs TestCommandsExist, and this test itself where the README or the Makefile differs from that which passed it")
	}
	require.Tools(t, require.Netns, "ip")
	dir := build(t)
	var run []string
	left := map[string]bool{}
	for _, line := range readmeCommands(t, filepath.Join(dir, "../README.md")) {
		if elsewhere[line] == "" {
			run = append(run, line)
		} else {
			left[line] = true
		}
	}
	if len(left) != len(elsewhere) {
		t.Errorf("of %d commands that are not run here the README has only %v", len(elsewhere), left)
	}
	// apt says what it would do. The command is found where it was built, as if it were installed.
	apt := filepath.Join(t.TempDir(), "apt.conf")
	if err := os.WriteFile(apt, []byte("APT::Get::Simulate \"true\";\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := "PS4='+ README: '; set -euxo pipefail; PATH=$PWD/build:$PATH\n" + strings.Join(run, "\n") + "\n"
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = filepath.Dir(dir)
	cmd.Env = append(outsideMake(), "APT_CONFIG="+apt)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(string(out)))
	}
	for _, want := range []string{"Inst ncclmesh ", "Inst libnccl-net-mesh ", "Inst libncclmesh ", "# Out of bounds values : 0 OK"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}

// Commands are found without their comments, and nothing else is taken for one.
func TestReadmeCommands(t *testing.T) {
	readme := filepath.Join(t.TempDir(), "README.md")
	text := "```\nno shell\n```\n```sh\nmake          # builds\n\nexport A=\"#1\"\n```\ntext\n```sh not-run=root\nmake packages\n```\n"
	if err := os.WriteFile(readme, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"make", `export A="#1"`, "make packages"}, readmeCommands(t, readme)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
