package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/require"
	"ncclmesh/tools/ncclmesh/doctor/gather"
)

// What a job would load is loaded in a child, which says what the dynamic linker does, and may crash or not return.
func TestLoad(t *testing.T) {
	require.Tools(t, require.CC, "cc")
	t.Parallel()
	dir := t.TempDir()
	// newer needs a version of the C library that no system has: it was linked with one that has it.
	script := `set -e; cd "$1"
		echo 'int newer(void) { return 0; }' >libc.c; echo 'GLIBC_2.999 { global: newer; };' >libc.map
		cc -shared -fPIC -nostdlib -Wl,-soname,libc.so.6 -Wl,--version-script=libc.map libc.c -o libc.so.6
		echo 'int newer(void); int use(void) { return newer(); }' >newer.c; cc -shared -fPIC newer.c ./libc.so.6 -o newer.so
		echo 'int none;' >fine.c; cc -shared -fPIC fine.c -o fine.so
		echo 'int absent(void); int (*use)(void) = absent;' >lacks.c; cc -shared -fPIC lacks.c -o lacks.so
		echo '#include <signal.h>
			__attribute__((constructor)) static void crash(void) { raise(SIGKILL); }' >crash.c; cc -shared -fPIC crash.c -o crash.so
		echo '#include <unistd.h>
			__attribute__((constructor)) static void wait(void) { for (;;) pause(); }' >hang.c; cc -shared -fPIC hang.c -o hang.so`
	if out, err := exec.Command("sh", "-c", script, "sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for file, want := range map[string]string{
		"fine.so":  "",
		"newer.so": "version `GLIBC_2.999' not found (required by " + dir + "/newer.so)",
		"lacks.so": "undefined symbol: absent",
		"crash.so": "the process that loaded it crashed: signal: killed",
		"hang.so":  "it does not come back from being loaded within 1ms",
	} {
		s := gather.Source{Environ: append(os.Environ(), "NCCL_NET_PLUGIN="+filepath.Join(dir, file))}
		if file == "hang.so" {
			s.LoadWait = time.Millisecond
		}
		n := gather.Node(s)
		loaded, ok := n.Process.Loaded.Get()
		if !ok || loaded.Path != filepath.Join(dir, file) || !loaded.Try.Done || !strings.Contains(loaded.Try.Error, want) || (loaded.Try.Error == "") != (want == "") {
			t.Errorf("%s: %+v, want %q", file, loaded, want)
		}
	}
}
