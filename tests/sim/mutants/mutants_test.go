package mutants

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/require"
)

var (
	only   = flag.String("mutant", "", "regular expression of the mutants that run")
	search = flag.Int("search", 500, "number of seeds within which a mutant must be found")
	in     = flag.String("in", "", "the only test that is tried")
	keep   = flag.String("keep", "", "where the binary that was compiled last is kept, for a look at what it does")
	show   = flag.Bool("show", false, "show what the job that finds a mutant prints")
)

// patience is how long the seeds of one test may take.
const patience = 20 * time.Minute

// A mutant is a mistake in the product.
type mutant struct {
	name  string
	fix   string // commit that it takes back; "" of a mistake
	wrong string // what goes wrong
	edits []edit
	tests []string // of tests/sim/mesh, that may find it
	found job      // the one that found it last
}

// An edit puts one text in another's place, which is in the file once.
type edit struct{ file, old, new string }

// A job is a seed of a test.
type job struct {
	test    string
	seed    uint64
	preempt bool
}

func (j job) String() string {
	how := ""
	if j.preempt {
		how = ", with goroutines that are preempted"
	}
	return fmt.Sprintf("%s, seed %d%s", j.test, j.seed, how)
}

const root = "../../.."

// apply returns the mutant's files, by name.
func (m *mutant) apply() (map[string]string, error) {
	return apply(slices.Concat(preempted, narrow, m.edits))
}

// apply returns the files with edits, by name.
func apply(edits []edit) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range edits {
		text, ok := files[e.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("%s contains %d times, not once:\n%s", e.file, n, e.old)
		}
		files[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	return files, nil
}

// The edits of each mutant fit the code, which they leave valid, and each mutant has the job that finds it.
func TestMutantsFit(t *testing.T) {
	names := map[string]bool{}
	code := listPackages(t)
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			if _, err := m.apply(); err != nil {
				t.Error(err)
			}
			own, err := apply(m.edits) // which change no type or constant that other packages use
			if err == nil {
				err = code.check(own)
			}
			if err != nil {
				t.Error(err)
			}
			if names[m.name] {
				t.Error("another mutant has this name")
			}
			names[m.name] = true
			if m.found.test == "" || !slices.Contains(m.tests, m.found.test) {
				t.Error("a mutant needs tests, and a job of one of them that has found it: -mutant, -search and -v look for one")
			}
		})
	}
}

// compile makes a binary of the tests of the mesh with some files in the place of those of the module.
func compile(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		at := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(top, name)] = at
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	binary := *keep
	if binary == "" {
		binary = filepath.Join(dir, "mesh.test")
	}
	build := exec.Command("go", "test", "-c", "-overlay", list, "-o", binary, "./tests/sim/mesh")
	build.Dir = top
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return binary
}

var failure = regexp.MustCompile(`(?m)^\s*(?:--- FAIL: |\t)(Test\w+)/(\d+) \(`)

// play runs the seeds of a test that begin with a job's, and returns the first that fails.
func play(t *testing.T, binary string, j job, n int) (found job, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience+time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, binary, "-test.run", "^"+j.test+"$", "-test.failfast", "-test.timeout", patience.String(), "-seed", fmt.Sprint(j.seed), "-seeds", fmt.Sprint(n))
	if j.preempt {
		run.Env = append(os.Environ(), "PREEMPT=1")
	}
	run.Dir = filepath.Join(root, "tests/sim/mesh")
	out, err := run.CombinedOutput()
	if err == nil {
		return job{}, ""
	}
	all := failure.FindStringSubmatch(string(out))
	if all == nil {
		t.Fatalf("%v: %v, and no seed failed:\n%s", run, err, out)
	}
	found = job{test: all[1], preempt: j.preempt}
	if _, err := fmt.Sscan(all[2], &found.seed); err != nil {
		t.Fatal(err)
	}
	return found, string(out)
}

// find returns the first job that fails.
func (m *mutant) find(t *testing.T, binary string) (found job, text string) {
	t.Helper()
	if m.found.test != "" {
		if found, text = play(t, binary, m.found, 1); found != (job{}) {
			return found, text
		}
	}
	const chunk = 25
	for first := 1; first <= *search; first += chunk {
		for _, test := range m.tests {
			if *in != "" && test != *in {
				continue
			}
			for _, preempt := range []bool{true, false} {
				if found, text = play(t, binary, job{test, uint64(first), preempt}, min(chunk, *search+1-first)); found != (job{}) {
					return found, text
				}
			}
		}
	}
	return job{}, ""
}

// The product passes jobs in which goroutines are preempted and less may be under way.
func TestProductIsPreempted(t *testing.T) {
	files, err := new(mutant).apply()
	if err != nil {
		t.Fatal(err)
	}
	binary := compile(t, files)
	for _, test := range []string{"TestSkewedCables", "TestSkewedRelays", "TestDetours", "TestExchangeBursts"} {
		const first, seeds = 1001, 4
		if found, text := play(t, binary, job{test, first, true}, seeds); found != (job{}) {
			t.Errorf("the product fails %v:\n%s", found, text)
		}
	}
}

// Each mutant is found, by a job that passes with the product as it is.
func TestMutantsAreFound(t *testing.T) {
	if *only == "" {
		require.Full(t, "tests/sim/mutants TestMutantsFit")
	}
	chosen, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	same, err := new(mutant).apply()
	if err != nil {
		t.Fatal(err)
	}
	product := compile(t, same)
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			if !chosen.MatchString(m.name) {
				t.Skip("not chosen")
			}
			files, err := m.apply()
			if err != nil {
				t.Fatal(err)
			}
			found, text := m.find(t, compile(t, files))
			if found == (job{}) {
				t.Fatalf("not found within %d seeds of %v", *search, m.tests)
			}
			t.Logf("found by %v; before by %v", found, m.found)
			if *show {
				t.Log(text)
			}
			if failed, text := play(t, product, found, 1); failed != (job{}) {
				t.Errorf("the product fails %v too:\n%s", found, text)
			}
		})
	}
}
