package netplan

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// What was there is put back unless netplan takes the file and the management network is there afterwards, and stays. Nothing
// is said once something has changed.
func TestApply(t *testing.T) {
	gone := errors.New("the default route: gone")
	tests := []struct {
		name   string
		before string
		fails  string   // the verb at which netplan fails, the first time
		lost   []error  // one look after another; the last again and again
		verbs  []string // what netplan is asked for
		after  string
		err    string
	}{
		{"fine", "", "", []error{nil}, []string{"generate", "apply"}, "new", ""},
		{"over one that was there", "old", "", []error{nil}, []string{"generate", "apply"}, "new", ""},
		{"a moment without", "old", "", []error{nil, gone, gone, nil}, []string{"generate", "apply"}, "new", ""},
		{"not as netplan wants it", "old", "generate", nil, []string{"generate", "generate"}, "old", "netplan generate: exit status 3: no good: the change is undone"},
		{"not applied", "old", "apply", nil, []string{"generate", "apply", "apply"}, "old", "netplan apply: exit status 3: no good: rolled back"},
		{"the management network lost", "old", "", []error{nil, gone}, []string{"generate", "apply", "apply"}, "old", "gone: rolled back"},
		{"lost, and no file before", "", "", []error{gone}, []string{"generate", "apply", "apply"}, "", "gone: rolled back"},
		{"interrupted", "old", "", []error{context.Canceled}, []string{"generate", "apply", "apply"}, "old", "interrupted while waiting"},
		{"a generate that hangs", "old", "generate hangs", nil, []string{"generate", "generate"}, "old", "netplan generate: did not end within 1m0s: half a: the change is undone"},
		{"an apply that hangs", "old", "apply hangs", nil, []string{"generate", "apply", "apply"}, "old", "netplan apply: did not end within 1m0s: half a: rolled back"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var verbs []string
				a := &Applier{Root: t.TempDir(), Patience: 200 * time.Millisecond, Steady: 20 * time.Millisecond, Limit: time.Minute}
				a.Say = func(what string) {
					if len(verbs) > 0 {
						t.Errorf("after %v it says %q, which may block or end it", verbs, what)
					}
				}
				a.Netplan = func(ctx context.Context, verb string) ([]byte, error) {
					verbs = append(verbs, verb)
					if strings.Count(strings.Join(verbs, " "), verb) > 1 {
						return nil, nil
					}
					switch tt.fails {
					case verb:
						return []byte("Trace\nno good\n"), errors.New("exit status 3")
					case verb + " hangs":
						<-ctx.Done()
						return []byte("half a"), errors.New("killed")
					}
					return nil, nil
				}
				undone := false
				a.Undo = func() error { undone = true; return nil }
				looks := 0
				a.Lost = func(context.Context) error {
					err := tt.lost[min(looks, len(tt.lost)-1)]
					looks++
					if errors.Is(err, context.Canceled) {
						cancel()
					}
					return err
				}
				if tt.before != "" {
					if err := a.replace([]byte(tt.before)); err != nil {
						t.Fatal(err)
					}
				}
				err := a.Apply(ctx, "new")
				if (tt.err != "") != (err != nil) || err != nil && !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				if diff := cmp.Diff(tt.verbs, verbs); diff != "" {
					t.Errorf("netplan (-want +got):\n%s", diff)
				}
				if back := len(tt.verbs) == 3; undone != back {
					t.Errorf("MTUs put back: %v, want %v", undone, back)
				}
				after, err := os.ReadFile(a.Path())
				if string(after) != tt.after || (tt.after == "") != errors.Is(err, os.ErrNotExist) {
					t.Errorf("the file says %q, %v; want %q", after, err, tt.after)
				}
				if info, err := os.Stat(a.Path()); err == nil && info.Mode().Perm() != 0o600 {
					t.Errorf("the file's mode is %v", info.Mode())
				}
				if backup, _ := os.ReadFile(a.Backup()); string(backup) != tt.before {
					t.Errorf("the backup says %q, want %q", backup, tt.before)
				}
			})
		})
	}
}

// What is interrupted before it has changed anything changes nothing.
func TestInterruptedFirst(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	root := t.TempDir()
	a := &Applier{Root: root, Say: func(string) { cancel(errors.New("no terminal")) }} // it would panic at anything more
	if err := a.Apply(ctx, "new"); err == nil || err.Error() != "interrupted before anything was changed: no terminal" {
		t.Error(err)
	}
	if files, err := os.ReadDir(root); len(files) > 0 || err != nil {
		t.Errorf("%v, %v; want no file", files, err)
	}
}

// Where rolling back fails as well, everything is tried, and a person is told what to do.
func TestRollBackFails(t *testing.T) {
	for before, want := range map[string]string{"": "to go back, run: rm -f PATH && netplan apply", "old": "to go back, run: mv PATH.before PATH && netplan apply"} {
		undone := false
		a := &Applier{Root: t.TempDir(), Say: func(string) {}, Limit: time.Minute, Undo: func() error { undone = true; return errors.New("MTU") }}
		a.Netplan = func(_ context.Context, verb string) ([]byte, error) {
			if verb == "generate" {
				return nil, nil
			}
			return []byte("Trace\nno \x1b[2Jgood\n"), errors.New("exit status 3")
		}
		if before != "" {
			if err := a.replace([]byte(before)); err != nil {
				t.Fatal(err)
			}
		}
		const failed = "netplan apply: exit status 3: no ?[2Jgood"
		want = strings.ReplaceAll(failed+"\nrolling back failed: "+failed+"\nMTU; "+want, "PATH", a.Path())
		if err := a.Apply(t.Context(), "new"); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if !undone {
			t.Error("MTUs were not put back")
		}
	}
}

// netplan is killed with what it has started when the context ends.
func TestRunEnds(t *testing.T) {
	dir := t.TempDir()
	up := filepath.Join(dir, "up")
	script := "#!/bin/sh\necho $1\nsleep 600 &\necho $! >" + up + "\nwait\n"
	if err := errors.Join(unix.Mkfifo(up, 0o600), os.WriteFile(filepath.Join(dir, "netplan"), []byte(script), 0o700)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = os.ReadFile(up)
		cancel()
	}()
	out, err := Run(ctx, "apply") // which returns when nothing has its output open any more
	if string(out) != "apply\n" || err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("%q, %v", out, err)
	}
}
