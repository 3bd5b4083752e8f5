package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/require"
)

// The service manager hears of a state on a socket in the file system or without a name there.
func TestNotify(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "notify"), fmt.Sprintf("@ncclmesh-test-%d", os.Getpid())} {
		c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := notify(&system{environ: []string{"NOTIFY_SOCKET=" + path}}, "READY=1"); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 64)
		n, err := c.Read(b)
		if got := string(b[:n]); got != "READY=1" || err != nil {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if err := notify(&system{}, "READY=1"); err != nil {
		t.Errorf("nobody asked: %v", err)
	}
	if err := notify(&system{environ: []string{"NOTIFY_SOCKET=/no/such"}}, "READY=1"); err == nil {
		t.Error("nobody listens, and that is no error")
	}
}

// The journal has a time of its own; a file that is not it has none, whatever the variable says.
func TestLogTime(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(w.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	var other bytes.Buffer
	stream := fmt.Sprintf("JOURNAL_STREAM=%d:%d", st.Dev, st.Ino)
	newLog(&system{environ: []string{stream}, stderr: w}, slog.LevelInfo).Info("to the journal")
	newLog(&system{environ: []string{stream}, stderr: &other}, slog.LevelInfo).Info("elsewhere")
	newLog(&system{environ: []string{stream}, stderr: &other}, slog.LevelInfo).Debug("not wanted")
	w.Close()
	said, err := io.ReadAll(r)
	if want := "level=INFO msg=\"to the journal\"\n"; string(said) != want || err != nil {
		t.Errorf("%q, %v, want %q", said, err, want)
	}
	if got := other.String(); !strings.HasPrefix(got, "time=") || strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
}

// systemd takes the units, but for the program, which may not be installed here.
func TestUnits(t *testing.T) {
	const installed = "ExecStart=/usr/bin/ncclmesh "
	dir := t.TempDir()
	var units []string
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ncclmesh-relay.service", "ncclmesh-metrics.service", "ncclmesh-metrics.timer"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".service") && !bytes.Contains(text, []byte(installed)) {
			t.Fatalf("%s has no %q", name, installed)
		}
		unit := filepath.Join(dir, name)
		text = bytes.ReplaceAll(text, []byte(installed), []byte("ExecStart="+self+" "))
		text = regexp.MustCompile(`(?m)^Documentation=.*\n`).ReplaceAll(text, nil) // the manual is not installed either
		if err := os.WriteFile(unit, text, 0o600); err != nil {
			t.Fatal(err)
		}
		units = append(units, unit)
	}
	require.Tools(t, require.Systemd, "systemd-analyze")
	if out, err := exec.Command("systemd-analyze", append([]string{"verify"}, units...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
