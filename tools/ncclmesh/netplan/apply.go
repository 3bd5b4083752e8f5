package netplan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
)

// The management network has Patience to be there, and to have been there without a break for Steady.
const (
	Patience = 10 * time.Second
	Steady   = 3 * time.Second
)

// An Applier puts a file in place.
type Applier struct {
	Root     string                          // "/"; another in tests, where Netplan has to know it
	Netplan  func(verb string) *exec.Cmd     // netplan generate, netplan apply
	Lost     func(ctx context.Context) error // what is missing of the management network; nil if nothing is
	Undo     func() error                    // puts back what netplan leaves when a file has gone; see [Plan.MTUs]
	Patience time.Duration
	Steady   time.Duration
	Say      func(string) // what is done
}

// A RolledBack says that all is as it was, and why.
type RolledBack struct{ Err error }

func (e *RolledBack) Error() string { return fmt.Sprintf("%v: rolled back", e.Err) }
func (e *RolledBack) Unwrap() error { return e.Err }

// Command runs the real netplan.
func Command(verb string) *exec.Cmd { return exec.Command("netplan", verb) }

// Path is where the file lies.
func (a *Applier) Path() string { return filepath.Join(a.Root, ownFile) }

// Backup is where the one before it lies. netplan does not read it.
func (a *Applier) Backup() string { return a.Path() + ".before" }

// Apply writes the file, applies it, and waits for the management network; without it, or when the context ends before it is
// steady, it puts back what was there, applies that and returns a [RolledBack].
func (a *Applier) Apply(ctx context.Context, text string) error {
	before, err := os.ReadFile(a.Path())
	had := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if had {
		if err := os.WriteFile(a.Backup(), before, 0o600); err != nil {
			return fmt.Errorf("back up: %w", err)
		}
		a.Say(a.Path() + " is kept as " + a.Backup())
	}
	if err := a.replace([]byte(text)); err != nil {
		return err
	}
	if err := a.netplan("generate"); err != nil { // nothing has changed but files
		return errors.Join(fmt.Errorf("%w: the file is taken back", err), a.putBack(had, before), a.netplan("generate"))
	}
	a.Say("wrote " + a.Path() + "; applying it")
	err = a.netplan("apply")
	if err == nil {
		err = a.wait(ctx)
	}
	if err == nil {
		return nil
	}
	a.Say(fmt.Sprintf("%v; rolling back", err))
	if back := errors.Join(a.putBack(had, before), a.netplan("apply"), a.Undo()); back != nil {
		return errors.Join(err, fmt.Errorf("rolling back failed: %w; remove %s and run netplan apply", back, a.Path()))
	}
	return &RolledBack{err}
}

func (a *Applier) netplan(verb string) error {
	cmd := a.Netplan(verb)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n") // of a trace the last says why
	return fmt.Errorf("netplan %s: %w: %s", verb, err, lines[len(lines)-1])
}

// wait returns nil when the management network has been there for long enough.
func (a *Applier) wait(ctx context.Context) error {
	begin := time.Now()
	since := begin
	var last error
	for {
		err := a.Lost(ctx)
		now := time.Now()
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted while waiting for the management network: %w", context.Cause(ctx))
		}
		if err != nil {
			last, since = err, now
		} else if now.Sub(since) >= a.Steady {
			return nil
		}
		if now.Sub(begin) >= a.Patience {
			return fmt.Errorf("the management network was not there for %v: %w", a.Patience, last)
		}
		select {
		case <-ctx.Done():
		case <-time.After(a.Steady / 8):
		}
	}
}

func (a *Applier) putBack(had bool, before []byte) error {
	if !had {
		return os.Remove(a.Path())
	}
	return a.replace(before)
}

// replace writes the file as a whole, or not at all. netplan asks that only root may read it.
func (a *Applier) replace(text []byte) error {
	dir := filepath.Dir(a.Path())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(a.Path(), text, 0o600, renameio.WithTempDir(dir), renameio.WithStaticPermissions(0o600))
}
