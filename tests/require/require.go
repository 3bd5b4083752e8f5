package require

import (
	"os"
	"slices"
	"strings"
	"testing"

	"ncclmesh/tests/internal/need"
)

// Variable lists what tests may not skip for want of. "all" is all but what takes
// a machine or minutes of its own: that must be named.
const Variable = "MESH_TEST_REQUIRE"

// The things that tests may have to do without.
const (
	CC       = "cc"       // C compilers for both architectures, and the headers of libibverbs
	Fake     = "fake"     // tests/fakeverbs
	Netns    = "netns"    // network namespaces, and the ip command to fill them
	IPv6     = "ipv6"     // an IPv6 loopback address
	Packages = "packages" // dpkg, rpm, and netplan
	Systemd  = "systemd"  // systemd-analyze; not part of "all"
	NCCL     = "nccl"     // Debian's package of NCCL, from its archive
	Clone    = "clone"    // git, and a clone of the repository; not part of "all"
	Lab      = "lab"      // virtual machines; not part of "all"
	GPU      = "gpu"      // an NVIDIA GPU, NCCL and PyTorch; not part of "all"
	Time     = "time"     // the time for everything, which FULL=1 takes; not part of "all"
)

// named are those that "all" does not stand for.
var named = []string{Systemd, Clone, Lab, GPU, Time}

// Tools ends a test as Skip does, for want of what, where programs, or files with an
// absolute path, are not installed.
func Tools(t testing.TB, what string, names ...string) {
	t.Helper()
	if err := need.Missing(names...); err != nil {
		Skip(t, what, err.Error())
	}
}

// VerbsHeader is what C needs to use libibverbs.
const VerbsHeader = need.VerbsHeader

// Skip ends a test that cannot run for want of what, saying why. Where the
// environment requires it, the test fails.
func Skip(t testing.TB, what, why string) {
	t.Helper()
	list := strings.Split(os.Getenv(Variable), ",")
	if slices.Contains(list, what) || slices.Contains(list, "all") && !slices.Contains(named, what) {
		t.Fatalf("%s=%s requires %s: %s", Variable, os.Getenv(Variable), what, why)
	}
	t.Skipf("skipped for want of %s: %s", what, why)
}

// IsFull reports whether tests are to do everything, with FULL=1 in the environment, and not a sample.
func IsFull() bool {
	full := os.Getenv("FULL")
	return full != "" && full != "0"
}

// Full ends a test as Skip does, for want of Time, unless everything is to be done. It is for tests that are no part of the gate, and says
// what in the gate covers their subject: a test, as "tests/sim/mesh TestNoFault", and more words if need be.
func Full(t testing.TB, cover string) {
	t.Helper()
	if !IsFull() {
		Skip(t, Time, "FULL=1 runs it; the gate has "+cover)
	}
}
