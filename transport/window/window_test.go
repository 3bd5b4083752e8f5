package window

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ncclmesh/guard"
	"ncclmesh/handshake"
)

// looker is the environment variable that makes the test's program read a window and print the result.
const looker = "MESH_TEST_LOOK"

func TestMain(m *testing.M) {
	if name := os.Getenv(looker); name != "" {
		f, who, err := Look(context.Background(), name)
		var text []byte
		if err == nil {
			text, err = io.ReadAll(f)
		}
		// The serving process checks the user itself, whatever this side does.
		c, e := dial(context.Background(), name)
		if e != nil {
			panic(e)
		}
		raw, e := receive(c)
		fmt.Printf("%q %d %v; %v %v", text, who.UID, err, raw != nil, e)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// shown returns a file with some text, and the id of the process that serves it.
func shown(t *testing.T) (*os.File, [16]byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shown")
	if err := os.WriteFile(path, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, handshake.NewProcessID(nil)
}

func open(t *testing.T, at string) (w *Window, id [16]byte) {
	t.Helper()
	f, id := shown(t)
	w, err := Open(at, id, f, func(p *guard.Panic) { t.Errorf("panic: %v", p) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(w.Close(), w.Close()); err != nil {
			t.Error(err)
		}
	})
	return w, id
}

// A window of every kind is found and can be read, and has gone when it is closed.
func TestLook(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "socket")
	tests := []struct {
		name string
		at   string
		is   func(id string) string
	}{
		{"an abstract name", "", func(id string) string { return Prefix + id }},
		{"a file", file, func(string) string { return file }},
		{"a directory", dir, func(id string) string { return filepath.Join(dir, id) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, id := open(t, tt.at)
			name := tt.is(hex.EncodeToString(id[:]))
			for range 3 {
				f, who, err := Look(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(io.NewSectionReader(f, 0, 100))
				if string(text) != "hello" || err != nil || who != (Owner{os.Getpid(), os.Geteuid()}) {
					t.Errorf("%q, %v, %+v", text, err, who)
				}
				if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
					t.Errorf("flags %#x, %v: a child would have it", flags, err)
				}
				f.Close()
			}
			if got := listed(t, name); got != (tt.at == "") {
				t.Errorf("found in the kernel's list: %v", got)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			if _, _, err := Look(t.Context(), name); err == nil || listed(t, name) {
				t.Errorf("after its end: %v, listed %v", err, listed(t, name))
			}
		})
	}
}

func listed(t *testing.T, name string) bool {
	t.Helper()
	list, err := os.Open("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	names, err := Find(list)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(names, name)
}

// The process refuses another user, and another user's Look does not read the descriptor.
func TestAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	_, id := open(t, "")
	name := Prefix + hex.EncodeToString(id[:])
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join("/dev/shm", fmt.Sprintf("mesh-window-test-%d", os.Getpid())) // where anybody may run it
	text, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(program, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(program)
	for uid, want := range map[uint32]string{65534: fmt.Sprintf(`"" 0 %v; false %[1]v`, ErrForeign), 0: `"hello" 0 <nil>; true <nil>`} {
		cmd := exec.Command(program)
		cmd.Env = []string{looker + "=" + name}
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.CombinedOutput()
		if diff := cmp.Diff(want, string(out)); diff != "" || err != nil {
			t.Errorf("uid %d: %v (-want +got):\n%s", uid, err, diff)
		}
	}
}

// A socket file of a dead process is replaced; one that is in use is not.
func TestSocketFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	left, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	f, id := shown(t)
	if _, err := Open(path, id, f, nil); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("in use: %v", err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	open(t, path)
	if _, err := Open(filepath.Join(path, "x"), id, f, nil); !errors.Is(err, syscall.ENOTDIR) || !strings.Contains(err.Error(), path) {
		t.Errorf("no directory: %v", err)
	}
}

// Look ends, with an error that describes the answer, whatever the other end does.
func TestStrangers(t *testing.T) {
	tests := []struct {
		name   string
		answer func(c *net.UnixConn)
		want   string
	}{
		{"nothing, and it hangs", func(c *net.UnixConn) { c.Read(make([]byte, 1)) }, "does not answer within 2s"},
		{"nothing", func(*net.UnixConn) {}, `sent "", with 0 descriptors`},
		{"another word", func(c *net.UnixConn) { c.Write([]byte("hello")) }, `sent "hello", with 0 descriptors`},
		{"no descriptor", func(c *net.UnixConn) { c.Write([]byte(granted)) }, "with 0 descriptors"},
		{"a newer answer", func(c *net.UnixConn) { c.WriteMsgUnix([]byte("ncclmesh 2"), unix.UnixRights(1), nil) }, `sent "ncclmesh 2", with 1`},
		{"a refusal", func(c *net.UnixConn) { c.WriteMsgUnix([]byte(refused), unix.UnixRights(1), nil) }, ErrForeign.Error()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "socket")
			ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			go func() {
				if c, err := ln.AcceptUnix(); err == nil {
					tt.answer(c)
					c.Close()
				}
			}()
			if f, _, err := Look(t.Context(), path); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, %v; want %q", f, err, tt.want)
			}
		})
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	const list = `Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0005 01 17 @ncclmesh/bb
0000000000000000: 00000002 00000000 00010000 0005 01 16 @ncclmesh/aa
0000000000000000: 00000003 00000000 00000000 0005 03 18 @ncclmesh/aa
0000000000000000: 00000002 00000000 00010000 0005 01 19 /run/@ncclmesh/x
0000000000000000: 00000002 00000000 00010000 0001 01 20
short
`
	got, err := Find(strings.NewReader(list))
	if diff := cmp.Diff([]string{"@ncclmesh/aa", "@ncclmesh/bb"}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
