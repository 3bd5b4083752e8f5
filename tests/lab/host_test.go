package lab

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParseAccel(t *testing.T) {
	for in, want := range map[string]Accel{"": AccelAuto, "auto": AccelAuto, "kvm": AccelKVM, "tcg": AccelTCG} {
		if got, err := ParseAccel(in); got != want || err != nil {
			t.Errorf("ParseAccel(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	if _, err := ParseAccel("hax"); err == nil {
		t.Error("hax: no error")
	}
}

func TestHasVirtualisation(t *testing.T) {
	for info, want := range map[string]bool{
		"processor\t: 0\nflags\t\t: fpu vmx sse\n": true,
		"flags\t\t: fpu svm\n":                     true,
		"flags\t\t: fpu hypervisor\n":              false,
		"vmx flags\t: vnmi\nflags\t\t: fpu\n":      false,
		"":                                         false,
	} {
		if got := hasVirtualisation(info); got != want {
			t.Errorf("hasVirtualisation(%q) = %v, want %v", info, got, want)
		}
	}
}

func TestSwitch(t *testing.T) {
	dir := t.TempDir()
	machines := []string{"a", "b", "c"}
	s, err := newSwitch(dir, machines)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var conn [3]*net.UnixConn
	for i, m := range machines {
		if conn[i], err = net.ListenUnixgram("unixgram", unixgram(machineSocket(dir, m))); err != nil {
			t.Fatal(err)
		}
		defer conn[i].Close()
	}
	frame := func(dst, src byte, text string) []byte {
		return append([]byte{2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src, 8, 0}, text...)
	}
	broadcast := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 0}, "who"...)
	send := func(from int, b []byte) {
		t.Helper()
		if _, err := conn[from].WriteToUnix(b, unixgram(switchSocket(dir, machines[from]))); err != nil {
			t.Fatal(err)
		}
	}
	receive := func(at int, want []byte) {
		t.Helper()
		buf := make([]byte, 2000)
		_ = conn[at].SetReadDeadline(time.Now().Add(2 * time.Minute))
		n, err := conn[at].Read(buf)
		if diff := cmp.Diff(want, buf[:n]); diff != "" || err != nil {
			t.Fatalf("%s received (-want +got):\n%s%v", machines[at], diff, err)
		}
	}
	send(0, broadcast) // to both others; a's address is learnt
	receive(1, broadcast)
	receive(2, broadcast)
	send(1, frame(1, 2, "to a"))
	receive(0, frame(1, 2, "to a"))
	send(2, frame(2, 3, "to b"))
	receive(1, frame(2, 3, "to b"))
	send(0, frame(9, 1, "unknown")) // flooded; c sees it first, so "to a" and "to b" were not flooded
	receive(2, frame(9, 1, "unknown"))
	receive(1, frame(9, 1, "unknown"))
	send(0, []byte("runt"))
	if err := conn[1].Close(); err != nil { // b is off
		t.Fatal(err)
	}
	send(0, frame(2, 1, "lost"))
	send(0, frame(3, 1, "to c"))
	receive(2, frame(3, 1, "to c"))
}

func TestFollower(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	var lines []string
	f := &follower{file: file, line: func(s string) { lines = append(lines, s) }}
	f.poll() // no file yet
	add := func(s string) {
		t.Helper()
		w, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if _, err := w.WriteString(s); err != nil {
			t.Fatal(err)
		}
		f.poll()
	}
	add("one\ntw")
	add("o\nthr")
	all := f.end()
	if diff := cmp.Diff([]string{"one", "two", "thr"}, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if all != "one\ntwo\nthr" {
		t.Errorf("everything: %q", all)
	}
}

func TestTail(t *testing.T) {
	c := &tail{limit: 8}
	_, _ = c.Write([]byte("0123456789"))
	_, _ = c.Write([]byte("ab\n"))
	if got := c.String(); got != "56789ab" {
		t.Errorf("tail = %q", got)
	}
}

func TestCopyInto(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(from, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "d/run.sh"), []byte("x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("d/run.sh", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	if err := copyInto(to, from); err != nil {
		t.Fatal(err)
	}
	if err := copyInto(to, filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d/run.sh", "link"} {
		st, err := os.Lstat(filepath.Join(to, name))
		if err != nil || !st.Mode().IsRegular() || st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v; want a plain executable file", name, st, err)
		}
	}
	if err := copyInto(to, filepath.Join(from, "gone")); err == nil {
		t.Error("a missing file: no error")
	}
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-time.Hour)
	make := func(name string, mtime time.Time) *os.File {
		t.Helper()
		d := filepath.Join(dir, name)
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(filepath.Join(d, "lock"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(d, mtime, mtime); err != nil {
			t.Fatal(err)
		}
		return f
	}
	_ = make("x-dead", old).Close()
	_ = make("x-new", time.Now()).Close()
	_ = make("other", old).Close()
	running := make("x-running", old)
	defer running.Close()
	if err := flock(running, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	sweep(filepath.Join(dir, "x-*"))
	var left []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if diff := cmp.Diff([]string{"other", "x-new", "x-running"}, left); diff != "" || err != nil {
		t.Errorf("directories left (-want +got):\n%s%v", diff, err)
	}
}
