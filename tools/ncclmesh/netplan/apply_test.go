package netplan

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What was there is put back unless netplan takes the file and the management network is there afterwards, and stays.
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
		{"not as netplan wants it", "old", "generate", nil, []string{"generate", "generate"}, "old", "netplan generate: exit status 3: no good: the file is taken back"},
		{"not applied", "old", "apply", nil, []string{"generate", "apply", "apply"}, "old", "netplan apply: exit status 3: no good: rolled back"},
		{"the management network lost", "old", "", []error{nil, gone}, []string{"generate", "apply", "apply"}, "old", "gone: rolled back"},
		{"lost, and no file before", "", "", []error{gone}, []string{"generate", "apply", "apply"}, "", "gone: rolled back"},
		{"interrupted", "old", "", []error{context.Canceled}, []string{"generate", "apply", "apply"}, "old", "interrupted while waiting"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var verbs []string
				a := &Applier{Root: t.TempDir(), Patience: 200 * time.Millisecond, Steady: 20 * time.Millisecond, Say: func(what string) { t.Log(what) }}
				a.Netplan = func(verb string) *exec.Cmd {
					verbs = append(verbs, verb)
					if verb == tt.fails && strings.Count(strings.Join(verbs, " "), verb) == 1 {
						return exec.Command("sh", "-c", "echo Trace; echo no good; exit 3")
					}
					return exec.Command("true")
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
