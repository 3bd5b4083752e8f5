package setup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/tools/ncclmesh/library"
)

// A Word is what an agent is told after it has said what the host has: parts of the library, if that is to be copied, and then
// the steps.
type Word struct {
	Part  []byte `json:"part,omitempty"`
	Steps []Step `json:"steps,omitempty"`
	End   bool   `json:"end,omitempty"` // nothing is to be done
}

// Done answers the steps.
type Done struct {
	Done int `json:"done"` // how many of them
}

// Serve returns the handler of an agent.
func Serve(getenv func(string) string) fleet.Handler {
	return func(ctx context.Context, q *fleet.Question) error {
		var r Request
		if err := q.With(&r); err != nil {
			return err
		}
		s, err := look(ctx, r, getenv)
		if err != nil {
			return err
		}
		if err := q.Answer(s); err != nil {
			return err
		}
		a := &applier{ctx: ctx, prefix: s.Prefix}
		defer a.close()
		for {
			var w Word
			if err := q.Hear(&w); err != nil {
				return err
			}
			switch {
			case w.End:
				return nil
			case len(w.Part) > 0:
				if err := a.take(w.Part); err != nil {
					return err
				}
			default:
				for _, st := range w.Steps {
					if err := a.do(st); err != nil {
						return fmt.Errorf("%s: %w", st, err)
					}
				}
				return q.Answer(Done{len(w.Steps)})
			}
		}
	}
}

// applier does the steps on one host.
type applier struct {
	ctx     context.Context
	prefix  string
	library *os.File // what has come of it; nil: nothing
}

func (a *applier) close() {
	if a.library != nil {
		_ = a.library.Close()
		_ = os.Remove(a.library.Name()) // a copy in a directory for such
	}
}

// take keeps a part of the library.
func (a *applier) take(part []byte) (err error) {
	if a.library == nil {
		if a.library, err = os.CreateTemp("", library.Name+".*"); err != nil {
			return err
		}
	}
	_, err = a.library.Write(part)
	return err
}

func (a *applier) do(st Step) error {
	switch st.Kind {
	case CopyCommand:
		self, err := os.Executable()
		if err != nil {
			return err
		}
		return a.install(self, st, "755")
	case CopyLibrary:
		if a.library == nil {
			return errors.New("the library has not come")
		}
		if _, err := library.Identify(a.library.Name()); err != nil {
			return err
		}
		return a.install(a.library.Name(), st, "644")
	case SwitchOn:
		return a.run(st.Sudo, "ip", "link", "set", "dev", st.Target, "up")
	}
	return fmt.Errorf("this build does not know the step %q", st.Kind)
}

// install copies a file to where the step says, which is below the prefix.
func (a *applier) install(file string, st Step, mode string) error {
	if rel, err := filepath.Rel(a.prefix, st.Target); err != nil || strings.HasPrefix(rel, "..") {
		return fmt.Errorf("%s is not below %s", st.Target, a.prefix)
	}
	return a.run(st.Sudo, "install", "-D", "-m", mode, file, st.Target)
}

// packages are those with the programs that the steps need.
var packages = map[string]string{"ip": "iproute2", "install": "coreutils", "sudo": "sudo"}

// run runs a program, with sudo if that is asked for.
func (a *applier) run(sudo bool, program string, args ...string) error {
	if sudo {
		program, args = "sudo", append([]string{"-n", program}, args...)
	}
	out, err := exec.CommandContext(a.ctx, program, args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s is not in PATH there: install %s", program, packages[program])
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return nil
}
