package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ncclmesh/tests/require"
)

// fakeNetplan takes the default route away at its first apply, tells so in the file up, waits for a status in the file go,
// and ends with it. Its second apply gives the route back. $0's directory has the files.
const fakeNetplan = `#!/bin/sh
cd "${0%/*}"
echo $1 >>verbs
test $1 = apply || exit 0
if test $(grep -c apply verbs) = 1; then
	ip route del default
	echo >up
	read status <go
	exit $status
fi
ip route add default via 10.9.0.2 dev mg
`

// An applying is a command that applies a file in a network namespace with a cable and a default route.
type applying struct {
	*exec.Cmd
	dir       string // has etc and the fake netplan
	namespace string
	alive     *os.File // is at its end when no process of the command is left
}

// newApplying makes the namespace and the command, which has not started.
func newApplying(t *testing.T) *applying {
	t.Helper()
	require.Tools(t, require.Netns, "ip", "sh", "mount")
	a := &applying{dir: t.TempDir(), namespace: fmt.Sprintf("apply-%d-%s", os.Getpid(), filepath.Base(t.Name()))}
	other := a.namespace + "-b"
	for _, n := range []string{a.namespace, other} {
		if out, err := exec.Command("ip", "netns", "add", n).CombinedOutput(); err != nil {
			require.Skip(t, require.Netns, string(out))
		}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", n).Run() })
	}
	const script = `set -e
		for l in pa mg; do
			ip link add $l netns $1 type veth peer name $l netns $2
			ip -n $1 link set $l up
			ip -n $2 link set $l up
		done
		ip -n $1 addr add 10.9.0.1/24 dev mg
		ip -n $2 addr add 10.9.0.2/24 dev mg
		ip -n $1 route add default via 10.9.0.2 dev mg
		for n in $1 $2; do
			until ip -n $n -6 -o addr show dev pa scope link -tentative | grep -q pa; do sleep 0.1; done
		done`
	if out, err := exec.Command("sh", "-c", script, "sh", a.namespace, other).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(a.dir, "etc/netplan"), 0o755), os.WriteFile(filepath.Join(a.dir, "netplan"), []byte(fakeNetplan), 0o700),
		unix.Mkfifo(filepath.Join(a.dir, "up"), 0o600), unix.Mkfifo(filepath.Join(a.dir, "go"), 0o600)); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// ip has given it mounts of its own.
	a.Cmd = exec.Command("ip", "netns", "exec", a.namespace, "sh", "-c", `mount --bind "$0" /etc && exec "$@"`, filepath.Join(a.dir, "etc"),
		self, "netplan", "--apply", "--interface", "pa")
	a.Env = append(os.Environ(), asCommand+"=1", "PATH="+a.dir+":"+os.Getenv("PATH"), "SSH_CONNECTION=")
	alive, held, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(alive.Close(), held.Close()) })
	a.alive, a.ExtraFiles = alive, []*os.File{held}
	return a
}

// What a person, a terminal or the kernel does to the command while netplan runs leaves the node as it was.
func TestRollBackSurvives(t *testing.T) {
	tests := []struct {
		name   string
		begin  func(*testing.T, *applying) (end func()) // sets the command's outputs
		status string                                   // of netplan
	}{
		{"pipe", func(t *testing.T, a *applying) func() { // … 2>&1 | head -2
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { w.Close() })
			a.Stdout, a.Stderr = w, w
			return func() { _ = errors.Join(w.Close(), r.Close()) }
		}, "3"},
		{"killed", func(_ *testing.T, a *applying) func() { return func() { _ = a.Process.Kill() } }, "0"},
		{"terminated", func(_ *testing.T, a *applying) func() { return func() { _ = a.Process.Signal(syscall.SIGTERM) } }, "0"},
		{"terminal", func(t *testing.T, a *applying) func() {
			ours, theirs := terminal(t)
			a.Stdin, a.Stdout, a.Stderr = theirs, theirs, theirs
			a.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			return func() { _ = errors.Join(theirs.Close(), ours.Close()) } // it hangs up
		}, "0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := newApplying(t)
			end := tt.begin(t, a)
			if err := a.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				_ = a.ExtraFiles[0].Close()
				_, err := io.ReadAll(a.alive)
				ended <- errors.Join(err, a.Wait())
				// A command that never comes so far as to run netplan leaves the test reading.
				if f, err := os.OpenFile(filepath.Join(a.dir, "up"), os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
					f.Close()
				}
			}()
			if _, err := os.ReadFile(filepath.Join(a.dir, "up")); err != nil {
				t.Fatal(err)
			}
			end()
			if err := os.WriteFile(filepath.Join(a.dir, "go"), []byte(tt.status+"\n"), 0); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err == nil {
				t.Error("its status is 0")
			}
			verbs, _ := os.ReadFile(filepath.Join(a.dir, "verbs"))
			if diff := cmp.Diff("generate\napply\napply\n", string(verbs)); diff != "" {
				t.Errorf("netplan ran (-want +got):\n%s", diff)
			}
			if files, err := os.ReadDir(filepath.Join(a.dir, "etc/netplan")); len(files) > 0 || err != nil {
				t.Errorf("%v, %v; want that the file is taken back", files, err)
			}
			if out, _ := exec.Command("ip", "-n", a.namespace, "route", "show", "default").CombinedOutput(); !strings.Contains(string(out), "via 10.9.0.2") {
				t.Errorf("the default route is %q", out)
			}
		})
	}
}

// terminal returns both ends of a new one.
func terminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}
