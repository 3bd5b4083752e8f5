package packages

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/internal/proved"
	"ncclmesh/tests/require"
)

// A target is an architecture with its names to everybody.
type target struct {
	deb, rpm, triplet string
	machine           elf.Machine
	cc                string   // compiles a program for it here
	run               []string // runs a program of it here
}

var (
	amd64 = target{"amd64", "x86_64", "x86_64-linux-gnu", elf.EM_X86_64, "gcc", nil}
	arm64 = target{"arm64", "aarch64", "aarch64-linux-gnu", elf.EM_AARCH64, "aarch64-linux-gnu-gcc", []string{"qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"}}
)

// targets are those that this machine builds.
func targets() []target {
	if runtime.GOARCH == "arm64" {
		native := arm64
		native.cc, native.run = "gcc", nil
		return []target{native}
	}
	return []target{amd64, arm64}
}

// perTarget is the number of packages of an architecture: three .deb, three .rpm and a tarball.
const perTarget = 7

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	return output(t, exec.Command(name, args...))
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd, err, &stdout, &stderr)
	}
	return stdout.String()
}

var built struct {
	sync.Mutex
	clone string
	err   error
}

func TestMain(m *testing.M) {
	status := m.Run()
	_ = os.RemoveAll(built.clone)
	os.Exit(status)
}

// clone makes a clone of the repository, with what is not committed yet.
const clone = `set -eu
git clone -q --shared --no-checkout . "$1"
git -C "$1" reset -q
git ls-files -z --cached --others --exclude-standard | tar --null --verbatim-files-from -T - --ignore-failed-read -c | tar -C "$1" -x`

// build is the directory of a build with packages, made once in a clean clone, as the README says it.
func build(t *testing.T) string {
	t.Helper()
	require.Tools(t, require.Packages, "dpkg", "dpkg-deb", "rpm", "rpm2archive", "make", "git", "python3")
	require.Tools(t, require.CC, "gcc", "aarch64-linux-gnu-gcc")
	built.Lock()
	defer built.Unlock()
	if built.clone == "" {
		if built.clone, built.err = os.MkdirTemp("", "mesh-packages-"); built.err == nil {
			if built.err = shell("../..", clone, built.clone); built.err == nil {
				built.err = shell(built.clone, packagesCommand)
			}
		}
	}
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.clone, "build")
}

// shell runs a command in a directory. Its arguments are $1 and so on.
func shell(dir, line string, args ...string) error {
	cmd := exec.Command("sh", append([]string{"-c", line, "sh"}, args...)...)
	cmd.Dir, cmd.Env = dir, outsideMake()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", line, err, out)
	}
	return nil
}

// outsideMake is the environment without what a make that runs the tests has put there.
func outsideMake() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "MAKE") || strings.HasPrefix(kv, "MFLAGS") })
}

// find is the one package of a pattern.
func find(t *testing.T, pattern string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(build(t), "packages", pattern))
	if err != nil || len(paths) != 1 {
		t.Fatalf("%s: %v, %v; want one", pattern, paths, err)
	}
	return paths[0]
}

// sums are the files below a directory.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = fmt.Sprintf("%x", sha256.Sum256(text))
	}
	return all
}

// What is built makes the same packages wherever it lies, however old it is, and whoever packs it: this is looked at again when what packs
// changes, or with FULL=1. `PROVED=1 go test -run TestReproducible ./tests/packages` says in the file "proved" that it was.
func TestReproducible(t *testing.T) {
	dir := build(t)
	want := sums(t, filepath.Join(dir, "packages"))
	if n := len(targets()) * perTarget; len(want) != n {
		t.Errorf("%d packages, want %d: %d for each architecture", len(want), n, perTarget)
	}
	if require.IsFull() {
		checkout := t.TempDir()
		archive := exec.Command("sh", "-c", `tar -C ../.. --exclude=./build --exclude=./.git -c . | tar -C "$1" -x`, "sh", checkout)
		output(t, archive)
		again := filepath.Join(checkout, "elsewhere")
		name := strings.TrimSpace(command(t, "make", "-s", "-C", "../..", "name"))
		t.Setenv("SOURCE_DATE_EPOCH", strings.TrimSpace(command(t, "git", "log", "-1", "--format=%ct")))
		if err := shell(checkout, packagesCommand+" BUILD="+again+" NAME="+name); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, sums(t, filepath.Join(again, "packages"))); diff != "" {
			t.Errorf("two builds (-first +second):\n%s", diff)
		}
		return
	}
	if proved.With(t, "packages_test.go", "../../tools/packages") {
		return // another packing shows what it showed before
	}
	again := t.TempDir()
	for _, arch := range []string{".", "arm64"} {
		for _, name := range []string{"ncclmesh", "libnccl-net-mesh.so", "libncclmesh.so"} {
			command(t, "install", "-D", filepath.Join(dir, arch, name), filepath.Join(again, arch, name)) // of now
		}
	}
	name := strings.TrimSpace(command(t, "make", "-s", "-C", "../..", "name"))
	pack := exec.Command("sh", "-c", `umask 077 && exec ../../tools/packages/pack "$@"`, "sh", again, name, runtime.GOARCH+":"+again, "arm64:"+again+"/arm64")
	pack.Env = append(os.Environ(), "TZ=Pacific/Auckland", "LC_ALL=C", "SOURCE_DATE_EPOCH="+strings.TrimSpace(command(t, "git", "log", "-1", "--format=%ct")))
	output(t, pack)
	if diff := cmp.Diff(want, sums(t, filepath.Join(again, "packages"))); diff != "" {
		t.Errorf("two packings (-first +second):\n%s", diff)
	}
}

// installed are the files of a root directory that no package manager keeps for itself.
func installed(t *testing.T, root string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		if rel == "var" {
			return filepath.SkipDir
		}
		if err == nil && !d.IsDir() {
			files = append(files, "/"+rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

// contents are what the packages together install, where lib is the directory of the libraries, zsh that of completions, and modules
// are the directories of Python's versions.
func contents(lib, zsh, licence string, modules []string) []string {
	files := []string{
		"/etc/ncclmesh/relay.env", "/usr/bin/ncclmesh", "/usr/lib/ncclmesh/compat/libnccl-net.so", lib + "/libnccl-net-mesh.so",
		"/usr/lib/systemd/system/ncclmesh-relay.service", "/usr/lib/systemd/system/ncclmesh-metrics.service", "/usr/lib/systemd/system/ncclmesh-metrics.timer", "/usr/share/bash-completion/completions/ncclmesh",
		"/usr/share/fish/vendor_completions.d/ncclmesh.fish", "/usr/share/zsh/" + zsh + "/_ncclmesh",
		lib + "/libncclmesh.so", "/usr/include/ncclmesh.h", "/usr/lib/ncclmesh/python/ncclmesh.py",
	}
	for _, name := range names {
		files = append(files, fmt.Sprintf(licence, name))
	}
	for _, dir := range modules {
		files = append(files, dir+"/ncclmesh.py")
	}
	slices.Sort(files)
	return files
}

// names are the packages.
var names = []string{"libnccl-net-mesh", "libncclmesh", "ncclmesh"}

// dist are the directories in which Debian, and site those in which Fedora and RHEL look for Python modules.
var dist, site = []string{"/usr/lib/python3/dist-packages"}, sites()

func sites() (dirs []string) {
	for minor := 9; minor <= 15; minor++ {
		dirs = append(dirs, fmt.Sprintf("/usr/lib/python3.%d/site-packages", minor))
	}
	return dirs
}

// document matches what the packages have of the repository's pages, which TestPages looks at.
var document = regexp.MustCompile(`^/usr/share/doc/(?:ncclmesh|libnccl-net-mesh|libncclmesh)/(?:[A-Z]+\.md|LICENSE|docs/.*)$`)

var manual = regexp.MustCompile(`^/usr/share/man/man1/ncclmesh(-[a-z]+)*\.1\.gz$`)

// checkRoot looks at a root directory with the packages in it, of which want are the files.
func checkRoot(t *testing.T, root string, g target, want []string) {
	t.Helper()
	var files, pages []string
	for _, path := range installed(t, root) {
		switch {
		case document.MatchString(path):
		case manual.MatchString(path):
			pages = append(pages, path)
		default:
			files = append(files, path)
		}
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("installed (-want +got):\n%s", diff)
	}
	for _, page := range []string{"/usr/share/man/man1/ncclmesh.1.gz", "/usr/share/man/man1/ncclmesh-relay.1.gz"} {
		if !slices.Contains(pages, page) {
			t.Errorf("no %s in %v", page, pages)
		}
	}
	if info, err := os.Stat(filepath.Join(root, "etc/ncclmesh/relay.env")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("relay.env: %v, %v; it is for a key, and only root may read it", info, err)
	}
	link := filepath.Join(root, "usr/lib/ncclmesh/compat/libnccl-net.so")
	for _, path := range []string{link, filepath.Join(root, "usr/bin/ncclmesh")} {
		f, err := elf.Open(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if f.Machine != g.machine {
			t.Errorf("%s is for %v, want %v", path, f.Machine, g.machine)
		}
		f.Close()
	}
	args := append(slices.Clone(g.run), filepath.Join(root, "usr/bin/ncclmesh"), "--version")
	if said := command(t, args[0], args[1:]...); !strings.HasPrefix(said, "ncclmesh 1.0-dev") {
		t.Errorf("%v: %q", args, said)
	}
}

// dpkg installs the packages into an empty root directory, what is in them runs, and purging leaves nothing.
func TestDeb(t *testing.T) {
	for _, g := range targets() {
		t.Run(g.deb, func(t *testing.T) {
			root := t.TempDir()
			for _, dir := range []string{"info", "updates", "triggers"} {
				if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg", dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			dpkg := func(args ...string) {
				// There is nothing in the root directory that scripts could run in: they run outside, and see that by DPKG_ROOT.
				cmd := exec.Command("dpkg", append([]string{"--root=" + root, "--log=/dev/null", "--force-depends", "--force-architecture",
					"--force-script-chrootless", "--force-not-root"}, args...)...)
				output(t, cmd)
			}
			install := []string{"--install"}
			for _, name := range names {
				install = append(install, find(t, name+"_*_"+g.deb+".deb"))
			}
			dpkg(install...)
			lib := "/usr/lib/" + g.triplet
			checkRoot(t, root, g, contents(lib, "vendor-completions", "/usr/share/doc/%s/copyright", dist))
			checkLibrary(t, root, g, lib, dist)
			dpkg(append([]string{"--remove"}, names...)...)
			if diff := cmp.Diff([]string{"/etc/ncclmesh/relay.env"}, installed(t, root)); diff != "" {
				t.Errorf("removed, but for settings (-want +got):\n%s", diff)
			}
			dpkg(append([]string{"--purge"}, names...)...)
			if left := installed(t, root); len(left) > 0 {
				t.Errorf("purging leaves %v", left)
			}
		})
	}
}

// rpm finds its packages sound, says the same of them, and installs and erases them.
func TestRPM(t *testing.T) {
	for _, g := range targets() {
		t.Run(g.rpm, func(t *testing.T) {
			plugin, library, tool := find(t, "libnccl-net-mesh-*."+g.rpm+".rpm"), find(t, "libncclmesh-*."+g.rpm+".rpm"), find(t, "ncclmesh-*."+g.rpm+".rpm")
			command(t, "rpm", "--checksig", "--nosignature", plugin, library, tool)
			checkMetadata(t, plugin, "libnccl-net-mesh "+g.rpm+" MIT localhost\nlibc.so.6(GLIBC_2.34)(64bit) libibverbs \n"+
				"/usr/lib/ncclmesh/compat/libnccl-net.so l--------- root\n/usr/lib64/libnccl-net-mesh.so -rwxr-xr-x root\n"+
				"/usr/share/licenses/libnccl-net-mesh/LICENSE -rw-r--r-- root\n")
			checkMetadata(t, library, "libncclmesh "+g.rpm+" MIT localhost\nlibc.so.6(GLIBC_2.34)(64bit) libibverbs python3 \n"+
				"/usr/include/ncclmesh.h -rw-r--r-- root\n/usr/lib/ncclmesh drwxr-xr-x root\n/usr/lib/ncclmesh/python drwxr-xr-x root\n"+
				"/usr/lib/ncclmesh/python/ncclmesh.py -rw-r--r-- root\n"+siteMetadata()+
				"/usr/lib64/libncclmesh.so -rwxr-xr-x root\n/usr/share/licenses/libncclmesh/LICENSE -rw-r--r-- root\n")
			if said := command(t, "rpm", "-qp", "--nosignature", "--configfiles", tool); said != "/etc/ncclmesh/relay.env\n" {
				t.Errorf("settings: %q", said)
			}
			if os.Geteuid() != 0 {
				t.Log("not root: not installed")
				return
			}
			root := t.TempDir()
			rpm := func(args ...string) {
				command(t, "rpm", append([]string{"--root", root, "--dbpath", "/var/lib/rpm", "--nodeps", "--noscripts", "--nosignature"}, args...)...)
			}
			rpm("-i", "--ignorearch", plugin, library, tool)
			checkRoot(t, root, g, contents("/usr/lib64", "site-functions", "/usr/share/licenses/%s/LICENSE", site))
			checkLibrary(t, root, g, "/usr/lib64", site)
			// rpm would run it in the root directory, where there is no shell.
			preun := exec.Command("sh", "-c", command(t, "rpm", "-qp", "--nosignature", "--qf", "%{PREUN}", library), "sh", "0")
			preun.Env = append(os.Environ(), "DPKG_ROOT="+root)
			output(t, preun)
			rpm(append([]string{"-e"}, names...)...)
			if left := installed(t, root); len(left) > 0 {
				t.Errorf("erasing leaves %v", left)
			}
			if left, _ := filepath.Glob(filepath.Join(root, "usr/lib/python*")); len(left) > 0 {
				t.Errorf("erasing leaves the directories %v", left)
			}
		})
	}
}

// checkMetadata looks at what rpm says of a package: name, dependencies and files, but for the pages, which are documents.
func checkMetadata(t *testing.T, path, want string) {
	t.Helper()
	const format = `%{NAME} %{ARCH} %{LICENSE} %{BUILDHOST}\n[%{REQUIRENAME} ][%{RECOMMENDNAME} ][%{SUGGESTNAME} ]\n[%{FILENAMES} %{FILEMODES:perms} %{FILEUSERNAME}\n]`
	name, _, _ := strings.Cut(want, " ")
	pages := "/usr/share/doc/" + name
	var said string
	for line := range strings.Lines(command(t, "rpm", "-qp", "--nosignature", "--qf", format, path)) {
		if !strings.HasPrefix(line, pages) {
			said += line
		}
	}
	documents := strings.Fields(command(t, "rpm", "-qp", "--nosignature", "--docfiles", path))
	for _, page := range []string{"README.md", "docs/failover.md", "docs/onesided.md", "docs/onesided/kvcache.c", "docs/onesided/kvcache.py"} {
		if !slices.Contains(documents, pages+"/"+page) {
			t.Errorf("%s is no document of %s: %v", page, name, documents)
		}
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("rpm says (-want +got):\n%s", diff)
	}
}

// siteMetadata is what checkMetadata wants of the directories of Python's versions, in the order of their names.
func siteMetadata() string {
	dirs := slices.Sorted(slices.Values(site))
	var b strings.Builder
	for _, dir := range dirs {
		fmt.Fprintf(&b, "%s drwxr-xr-x root\n%s drwxr-xr-x root\n%s/ncclmesh.py l--------- root\n", filepath.Dir(dir), dir, dir)
	}
	return b.String()
}
