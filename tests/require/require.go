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
	Lab      = "lab"      // virtual machines; not part of "all"
	GPU      = "gpu"      // an NVIDIA GPU, NCCL and PyTorch; not part of "all"
)

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
	if slices.Contains(list, what) || what != Lab && what != GPU && what != Systemd && slices.Contains(list, "all") {
		t.Fatalf("%s=%s requires %s: %s", Variable, os.Getenv(Variable), what, why)
	}
	t.Skipf("skipped for want of %s: %s", what, why)
}
