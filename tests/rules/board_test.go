package rules

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ncclmesh/tests/require"
)

// relaxed makes nothing of the order that the boards ask for: what tests it must fail.
var relaxed = []string{"-U__ATOMIC_ACQUIRE", "-D__ATOMIC_ACQUIRE=0", "-U__ATOMIC_RELEASE", "-D__ATOMIC_RELEASE=0", "-U__ATOMIC_ACQ_REL", "-D__ATOMIC_ACQ_REL=0"}

// The C side of the boards, beside threads that write as Go does, races with none of
// them, and ThreadSanitizer would see it.
func TestBoardUnderThreadSanitizer(t *testing.T) {
	dir := t.TempDir()
	compile := func(name string, more ...string) string {
		program := filepath.Join(dir, name)
		cc := exec.Command("gcc", append(more, "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-fsanitize=thread", "-I", filepath.Join(root(t), "capi"),
			"-o", program, "testdata/board.c", filepath.Join(root(t), "capi/board.c"), "-pthread")...)
		if out, err := cc.CombinedOutput(); err != nil {
			require.Skip(t, require.CC, string(out))
		}
		return program
	}
	run := func(program string) string {
		cmd := exec.Command("setarch", "-R", program) // its memory lies where the sanitizer expects it
		cmd.Env = append(os.Environ(), "TSAN_OPTIONS=halt_on_error=1")
		out, err := cmd.CombinedOutput()
		if err != nil && !bytes.Contains(out, []byte("data race")) {
			t.Fatalf("%v:\n%s", err, out)
		}
		return string(out)
	}
	if out := run(compile("ordered")); out != "ok\n" {
		t.Errorf("%s", out)
	}
	if out := run(compile("relaxed", relaxed...)); !strings.Contains(out, "data race") {
		t.Errorf("without any order there is no race either:\n%s", out)
	}
}

// On arm64 what Go or a device writes is read with acquire, and what is taken released.
// The order is x86's gift, so that no test on it can fail.
func TestBoardIsOrderedOnArm64(t *testing.T) {
	count := func(more ...string) map[string]map[string]int {
		object := filepath.Join(t.TempDir(), "board.o")
		cc := exec.Command("aarch64-linux-gnu-gcc", append(more, "-std=gnu11", "-O2", "-g0", "-fno-inline-functions-called-once", "-I", filepath.Join(root(t), "capi"),
			"-c", "-o", object, filepath.Join(root(t), "capi/board.c"))...)
		if out, err := cc.CombinedOutput(); err != nil {
			require.Skip(t, require.CC, string(out))
		}
		out, err := exec.Command("aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", object).Output()
		if err != nil {
			t.Fatal(err)
		}
		function, name := regexp.MustCompile(`^[0-9a-f]+ <(\w+)`), ""
		instruction := regexp.MustCompile(`^\s+[0-9a-f]+:\s+(ldap?r|stlr)\s`)
		n := map[string]map[string]int{}
		for line := range strings.Lines(string(out)) {
			if m := function.FindStringSubmatch(line); m != nil {
				name = m[1]
				n[name] = map[string]int{}
			}
			if m := instruction.FindStringSubmatch(line); m != nil {
				n[name][strings.Replace(m[1], "ldapr", "ldar", 1)]++
			}
		}
		return n
	}
	tests := []struct {
		function         string
		acquire, release int // that there are at least
	}{
		{"mesh_board_waits", 3, 0},   // ring, head, the grant's sequence
		{"mesh_board_answers", 3, 1}, // state, disabled, polls; taken
		{"mesh_board_asked", 1, 0},   // polls
		{"mesh_board_publish", 0, 1},
		{"find", 2, 0}, // the place, comm
	}
	got, none := count(), count(relaxed...)
	for _, tt := range tests {
		n, inlined := got[tt.function]
		if tt.function == "find" && !inlined { // in each of its callers
			n = map[string]int{"ldar": min(got["mesh_board_waits"]["ldar"]-3, got["mesh_board_answers"]["ldar"]-3, got["mesh_board_asked"]["ldar"]-1)}
		}
		if n["ldar"] < tt.acquire || n["stlr"] < tt.release {
			t.Errorf("%s has %v, want %d acquiring loads and %d releasing stores", tt.function, n, tt.acquire, tt.release)
		}
		if m := none[tt.function]; len(m) > 0 {
			t.Errorf("%s has %v where nothing is ordered", tt.function, m)
		}
	}
}
