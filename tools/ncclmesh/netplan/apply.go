package netplan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"ncclmesh/printable"
)

// The management network has Patience to be there, and to have been there without a break for Steady. Each run of netplan
// has Limit.
const (
	Patience = 10 * time.Second
	Steady   = 3 * time.Second
	Limit    = 30 * time.Second
)

// An Applier puts a file in place.
type Applier struct {
	Root     string                                                       // "/"; another in tests, where Netplan has to know it
	Netplan  func(ctx context.Context, verb string) (out []byte, _ error) // netplan generate, netplan apply; see [Run]
	Lost     func(ctx context.Context) error                              // what is missing of the management network; nil if nothing is
	Undo     func() error                                                 // puts back what netplan leaves when a file has gone; see [Plan.MTUs]
	Patience time.Duration
	Steady   time.Duration
	Limit    time.Duration
	Say      func(string) // what is going to be done; it may block or lead nowhere
}

// A RolledBack says that all is as it was, and why.
type RolledBack struct{ Err error }

func (e *RolledBack) Error() string { return fmt.Sprintf("%v: rolled back", e.Err) }
func (e *RolledBack) Unwrap() error { return e.Err }

// Path is where the file lies.
func (a *Applier) Path() string { return filepath.Join(a.Root, ownFile) }

// Backup is where the one before it lies. netplan does not read it.
func (a *Applier) Backup() string { return a.Path() + ".before" }

// Apply writes the file, applies it, and waits for the management network; without it, or when the context ends before it is
// steady, it puts back what was there, applies that and returns a [RolledBack].
//
// Apply says what it is going to do before it changes anything, and nothing more until all is done or undone: the reader of
// its words may be on the other side of the network that is being changed, and is not waited for.
func (a *Applier) Apply(ctx context.Context, text string) error {
	before, err := os.ReadFile(a.Path())
	had := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if had {
		a.Say(a.Path() + " is kept as " + a.Backup())
	}
	a.Say("writing " + a.Path() + " and applying it")
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted before anything was changed: %w", context.Cause(ctx))
	}
	if had {
		if err := os.WriteFile(a.Backup(), before, 0o600); err != nil {
			return fmt.Errorf("back up: %w", err)
		}
	}
	if err := a.replace([]byte(text)); err != nil {
		return err
	}
	if err := a.netplan("generate"); err != nil { // nothing has changed but files
		return errors.Join(fmt.Errorf("%w: the change is undone", err), a.putBack(had, before), a.netplan("generate"))
	}
	err = a.netplan("apply")
	if err == nil {
		err = a.wait(ctx)
	}
	if err == nil {
		return nil
	}
	if back := errors.Join(a.putBack(had, before), a.netplan("apply"), a.Undo()); back != nil {
		return errors.Join(err, fmt.Errorf("rolling back failed: %w; %s", back, a.ByHand(had)))
	}
	return &RolledBack{err}
}

// ByHand says how a person puts back what was there: a file before this one, or none.
func (a *Applier) ByHand(had bool) string {
	if had {
		return fmt.Sprintf("to go back, run: mv %s %s && netplan apply", a.Backup(), a.Path())
	}
	return fmt.Sprintf("to go back, run: rm -f %s && netplan apply", a.Path())
}

// netplan runs netplan, for Limit at most, whatever else has ended.
func (a *Applier) netplan(verb string) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), a.Limit, fmt.Errorf("did not end within %v", a.Limit))
	defer cancel()
	out, err := a.Netplan(ctx, verb)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n") // of a trace the last says why
	if last := lines[len(lines)-1]; last != "" {
		err = fmt.Errorf("%w: %s", err, printable.Line(last, maxWords))
	}
	return fmt.Errorf("netplan %s: %w", verb, err)
}

// maxWords is how many bytes of netplan's words an error holds.
const maxWords = 300

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
