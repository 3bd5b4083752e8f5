package setup

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/tools/ncclmesh/library"
)

// TestMain is an agent too: hosts of these tests are this program.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "agent" {
		if err := fleet.Serve(context.Background(), os.Stdin, os.Stdout, fleet.Handlers{Do: Serve(os.Getenv)}); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Where the program that is carried there does not run, the installed one is asked; what is wrong there is told of the former.
func TestHosts(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const hosts = `
case $0.$1 in
other.sh|bare.sh) echo "--push: the program is for x86_64, this host is riscv64" >&2; exit 126 ;;
bare.*) echo "ncclmesh: not found" >&2; exit 127 ;;
*) exec "$SELF" agent ;;
esac`
	f := &fleet.Fleet{SSH: []string{"sh", "-c", hosts}, Push: self, Env: append(os.Environ(), "SELF="+self, "HOME="+t.TempDir(), "GORACE=atexit_sleep_ms=0")}
	for name, want := range map[string]string{"other": "", "bare": "this host is riscv64"} {
		all, err := Hosts(t.Context(), f, []string{name}, Request{User: true})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		if err == nil && (all[0].Machine != runtime.GOARCH || !strings.HasSuffix(all[0].Prefix, "/.local")) {
			t.Errorf("%s: %+v", name, all[0].State)
		}
		for _, h := range all {
			h.Close()
		}
	}
}

// A host gets what it lacks and no more, in the way that its rights allow.
func TestSteps(t *testing.T) {
	tests := []struct {
		name  string
		state State
		want  []string
		todo  int
	}{
		{"all is there", State{Command: "/usr/bin/ncclmesh", Library: "/usr/lib/libnccl-net-mesh.so", Prefix: usual, Root: IsRoot}, nil, 0},
		{"nothing is, with root", State{Prefix: usual, Root: IsRoot, Off: []string{"e0"}},
			[]string{"copy the command to /usr/local/bin/ncclmesh", "copy the library to /usr/local/lib/libnccl-net-mesh.so", "switch the interface e0 on, until the next boot"}, 3},
		{"with sudo", State{Library: "/x.so", Prefix: usual, Root: HasSudo, Off: []string{"e0"}},
			[]string{"copy the command to /usr/local/bin/ncclmesh, with sudo", "switch the interface e0 on, until the next boot, with sudo"}, 2},
		{"with sudo, for the user alone", State{Command: "/c", Prefix: "/home/u/.local", Root: HasSudo}, []string{"copy the library to /home/u/.local/lib/libnccl-net-mesh.so"}, 1},
		{"without root", State{Command: "/c", Prefix: "/home/u/.local", Off: []string{"e0"}},
			[]string{"copy the library to /home/u/.local/lib/libnccl-net-mesh.so", "cannot switch the interface e0 on without root: run sudo ip link set e0 up there"}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := Host{State: tt.state}
			var got []string
			for _, st := range h.Steps() {
				got = append(got, st.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || len(h.Todo()) != tt.todo {
				t.Errorf("%d to do, want %d (-want +got):\n%s", len(h.Todo()), tt.todo, diff)
			}
		})
	}
}

// What cannot be copied is said before anything is changed.
func TestCheck(t *testing.T) {
	const needing = "/bin/sh" // a file that needs some version
	needs, err := library.Needs(needing)
	if err != nil || needs == "" {
		t.Fatal(needs, err)
	}
	tests := []struct{ machine, library, own, libC, want string }{
		{runtime.GOARCH, "", "/own.so", "", ""},
		{runtime.GOARCH, "", needing, needs, ""},
		{runtime.GOARCH, "", needing, "", ""},
		{runtime.GOARCH, "", needing, "2.1", "b: its C library is glibc 2.1, and libnccl-net-mesh.so needs " + needs + ": use a newer system there"},
		{runtime.GOARCH, "", "", "", "b: there is no libnccl-net-mesh.so here to copy"},
		{"riscv64", "", "/own.so", "", "b: its processor is riscv64, and the library here is for "},
		{"riscv64", "/its.so", "", "", ""},
	}
	for _, tt := range tests {
		h := Host{Name: "b", State: State{Machine: tt.machine, Library: tt.library, LibC: tt.libC}}
		if err := h.Check(tt.own); (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// A step whose program is not there says which package has it.
func TestWithoutProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	a := applier{ctx: t.Context(), prefix: "/usr/local"}
	if err := a.do(Step{Kind: SwitchOn, Target: "e0"}); err == nil || err.Error() != "ip is not in PATH there: install iproute2" {
		t.Error(err)
	}
}

// An agent writes below the directory that it has named, and nowhere else, and no library that is none.
func TestApplier(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		step Step
		want string
	}{
		{Step{Kind: CopyCommand, Target: filepath.Join(dir, "bin/ncclmesh")}, ""},
		{Step{Kind: CopyCommand, Target: filepath.Join(dir, "../ncclmesh")}, "is not below"},
		{Step{Kind: CopyLibrary, Target: filepath.Join(dir, "lib/x.so")}, "not this project's library"},
		{Step{Kind: "format the disk"}, `does not know the step "format the disk"`},
	}
	for _, tt := range tests {
		a := applier{ctx: t.Context(), prefix: dir}
		if err := a.take([]byte("no library")); err != nil {
			t.Fatal(err)
		}
		if err := a.do(tt.step); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.step, err, tt.want)
		}
		if a.close(); tt.want == "" {
			if info, err := os.Stat(tt.step.Target); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("%v, %v", info, err)
			}
		}
		if _, err := os.Stat(a.library.Name()); err == nil {
			t.Errorf("%s is left behind", a.library.Name())
		}
	}
}
