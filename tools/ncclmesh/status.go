package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"ncclmesh/tools/ncclmesh/status"
)

const statusLong = `Shows what running jobs do: the cables to each peer, their traffic, what is down.

It shows all processes of this node, and of containers with its network, that have
the plugin or are relays: your own, or as root everybody's. No setting is needed and
the jobs do nothing for it: their counters are in shared memory. NCCL_MESH_STATUS
names a socket, or a directory of sockets, for processes that were started with it.

LANES counts the paths over a cable that are up, of all that there have been, and says
what carries them; LOST is how often one of them lost its last lane to a failure.
Rates are measured between two looks.`

const statusExample = `  ncclmesh status
  sudo ncclmesh status --watch
  ncclmesh status --json | jq '.processes[].cables[] | select(.state != "ok")'`

// statusFlags are those of ncclmesh status.
type statusFlags struct {
	watch    bool
	json     bool
	interval time.Duration
}

func statusCommand(sys *system) *cobra.Command {
	var f statusFlags
	c := &cobra.Command{
		Use:     "status",
		Short:   "Show the cables, traffic and failures of running jobs",
		Long:    statusLong,
		Example: statusExample,
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return runStatus(sys, f) },
	}
	c.Flags().BoolVar(&f.watch, "watch", false, "repeat it; on a terminal in its place, until Ctrl-C")
	c.Flags().BoolVar(&f.json, "json", false, "write JSON ("+status.Schema+"); with --watch a document on each line")
	c.Flags().DurationVar(&f.interval, "interval", time.Second, "`TIME` between two looks")
	return c
}

func runStatus(sys *system, f statusFlags) error {
	if f.interval < 10*time.Millisecond {
		return fmt.Errorf("--interval %v: want 10ms or more", f.interval)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	out, isFile := sys.stdout.(*os.File)
	v := &viewer{sys: sys, flags: f, seen: status.Viewer{Find: windows(sys)}}
	if f.watch && !f.json && isFile && term.IsTerminal(int(out.Fd())) {
		v.size = func() (int, int) {
			columns, rows, err := term.GetSize(int(out.Fd()))
			if err != nil || columns == 0 || rows == 0 { // as of some that are no screens
				return 80, 24
			}
			return columns, rows
		}
		fmt.Fprint(sys.stdout, screenBegins)
		defer fmt.Fprint(sys.stdout, screenEnds)
	}
	return v.run(ctx)
}

// windows finds all windows there are.
func windows(sys *system) func() ([]string, error) {
	return func() ([]string, error) { return status.Windows(sys.getenv("NCCL_MESH_STATUS")) }
}

// viewer shows looks one after another.
type viewer struct {
	sys   *system
	flags statusFlags
	seen  status.Viewer
	size  func() (columns, rows int) // of the terminal that is filled with each look; nil: looks follow each other
}

func (v *viewer) run(ctx context.Context) error {
	if _, err := v.seen.Look(ctx); err != nil {
		return failure{err}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(v.flags.interval):
		}
		r, err := v.seen.Look(ctx)
		if err == nil {
			err = v.show(r)
		}
		if err != nil {
			return failure{err}
		}
		if !v.flags.watch {
			return nil
		}
	}
}

func (v *viewer) show(r *status.Report) error {
	if v.flags.json {
		e := json.NewEncoder(v.sys.stdout)
		if !v.flags.watch {
			e.SetIndent("", "  ")
		}
		return e.Encode(r)
	}
	if v.size == nil {
		for _, t := range r.Errors {
			fmt.Fprintf(v.sys.stderr, "ncclmesh: %v\n", t)
		}
		return r.WriteText(v.sys.stdout)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "ncclmesh status  %s  every %v, Ctrl-C ends\n\n", r.Time.Local().Format(time.TimeOnly), v.flags.interval)
	if err := r.WriteText(&b); err != nil {
		return err
	}
	for _, t := range r.Errors {
		fmt.Fprintf(&b, "ncclmesh: %v\n", t)
	}
	columns, rows := v.size()
	_, err := io.WriteString(v.sys.stdout, frame(b.String(), columns, rows))
	return err
}

// What begins and ends a view that fills the terminal: it leaves what was on it before, and shows no cursor.
const (
	screenBegins = "\x1b[?1049h\x1b[?25l"
	screenEnds   = "\x1b[?25h\x1b[?1049l"
)

// frame writes a text over what is on a terminal, without a flicker: lines are cut at its width, and at its height.
func frame(text string, columns, rows int) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > rows {
		lines = append(lines[:max(rows-1, 0)], fmt.Sprintf("… and %d lines more", len(lines)-rows+1))
	}
	for i, line := range lines {
		if letters := []rune(line); len(letters) > columns {
			line = string(letters[:max(columns-1, 0)]) + "…"
		}
		lines[i] = line + "\x1b[K"
	}
	return "\x1b[H" + strings.Join(lines, "\r\n") + "\x1b[J"
}
