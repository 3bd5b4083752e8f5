package packages

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// program is in C what python is in Python: it shows that libncclmesh is found, and that its calls work.
const program = `#include <ncclmesh.h>
#include <stdio.h>

int main(void)
{
	void *p;
	if (ncclmeshAlloc(&p, 4096) != ncclmeshSuccess || ncclmeshFree(p) != ncclmeshSuccess)
		return 1;
	puts(ncclmeshGetVersion());
	return 0;
}
`

const python = `import ncclmesh
assert len(ncclmesh.alloc(4096)) == 4096
print(ncclmesh.__file__)
print(ncclmesh.version())
`

// checkProgram compiles a program for libncclmesh, whose header is in include and whose library is in lib, and runs it.
func checkProgram(t *testing.T, g target, include, lib string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.c"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	cc := exec.Command(g.cc, "-Wall", "-Werror", "-I", include, "-L", lib, "x.c", "-lncclmesh", "-o", "x")
	cc.Dir = dir
	output(t, cc)
	args := append(append([]string{}, g.run...), filepath.Join(dir, "x"))
	run := exec.Command(args[0], args[1:]...)
	run.Env = append(os.Environ(), "LD_LIBRARY_PATH="+lib)
	if said := output(t, run); !strings.HasPrefix(said, "1.0-dev") {
		t.Errorf("a program in C says that the version is %q", said)
	}
}

// checkPython imports the module from the directory modules; the loader also looks for libraries in lib, if it is not "". It leaves
// what Python compiles.
func checkPython(t *testing.T, modules, lib string) {
	t.Helper()
	cmd := exec.Command("python3", "-c", python)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+modules, "LD_LIBRARY_PATH="+lib, "NCCLMESH_LIBRARY=", "PYTHONDONTWRITEBYTECODE=", "PYTHONPYCACHEPREFIX=")
	file, version, _ := strings.Cut(output(t, cmd), "\n")
	if file != modules+"/ncclmesh.py" || !strings.HasPrefix(version, "1.0-dev") {
		t.Errorf("Python has imported %s, version %q; want it from %s", file, version, modules)
	}
	if compiled, err := filepath.Glob(modules + "/__pycache__/ncclmesh.*.pyc"); len(compiled) != 1 {
		t.Errorf("compiled files in %s: %v, %v; want one, for which the package has a script", modules, compiled, err)
	}
}

// checkLibrary uses libncclmesh as it is installed in a root directory: from C, and from Python where Python looks for modules.
func checkLibrary(t *testing.T, root string, g target, lib string, modules []string) {
	t.Helper()
	path := filepath.Join(root, lib, "libncclmesh.so")
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if f.Machine != g.machine {
		t.Errorf("%s is for %v, want %v", path, f.Machine, g.machine)
	}
	checkProgram(t, g, filepath.Join(root, "usr/include"), filepath.Join(root, lib))
	for _, dir := range append([]string{"/usr/lib/ncclmesh/python"}, modules...) {
		if _, err := os.Stat(filepath.Join(root, dir, "ncclmesh.py")); err != nil { // where a link leads
			t.Error(err)
		}
		if g.run == nil { // Python runs for this machine only
			checkPython(t, filepath.Join(root, dir), filepath.Join(root, lib))
		}
	}
}

// The script in the file to copy installs for one user, below ~/.local, what programs in C and Python use from there.
func TestInstallUser(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(build(t), "ncclmesh-*.tar"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v; want one file", files, err)
	}
	dir, home := t.TempDir(), t.TempDir()
	command(t, "tar", "-xf", files[0], "--strip-components=1", "-C", dir)
	install := exec.Command(filepath.Join(dir, "install"), "--user")
	install.Env = append(os.Environ(), "HOME="+home)
	output(t, install)
	local := filepath.Join(home, ".local")
	var got []string
	for _, below := range []string{"bin", "include", "lib"} {
		for _, file := range installed(t, filepath.Join(local, below)) {
			got = append(got, below+file)
		}
	}
	want := []string{"bin/ncclmesh", "include/ncclmesh.h", "lib/libnccl-net-mesh.so", "lib/libncclmesh.so",
		"lib/ncclmesh/compat/libnccl-net.so", "lib/ncclmesh/python/libncclmesh.so", "lib/ncclmesh/python/ncclmesh.py"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("installed (-want +got):\n%s", diff)
	}
	checkProgram(t, targets()[0], filepath.Join(local, "include"), filepath.Join(local, "lib"))
	checkPython(t, filepath.Join(local, "lib/ncclmesh/python"), "") // which finds the library beside itself
}
