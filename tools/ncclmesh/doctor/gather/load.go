package gather

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/procgroup"
)

// load loads what a job would load, or else what is installed.
func (l *looker) load() facts.Fact[facts.Loaded] {
	if l.PID != 0 {
		return facts.Known(facts.Loaded{Try: facts.Try{Why: "a running job has loaded what it needs, or has not"}})
	}
	lib, _ := l.node.Process.Plugin.Get()
	if installed, _ := l.node.Process.Installed.Get(); lib.Path == "" {
		lib = installed
	}
	if lib.Path == "" || lib.Missing {
		return facts.Known(facts.Loaded{Path: lib.Path, Try: facts.Try{Why: "there is none"}})
	}
	return facts.Known(facts.Loaded{Path: lib.Path, Try: facts.Tried(0, l.Load(l.seen(lib.Path)))})
}

// loadInChild loads a library in a child process, which it may end or hold up.
func (s *Source) loadInChild(path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.LoadWait)
	defer cancel()
	c := exec.Command(self, "load", path)
	c.Env = s.Environ
	var said bytes.Buffer
	c.Stderr = &said
	g, err := procgroup.Start(c)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { g.Signal(syscall.SIGKILL) })
	defer stop()
	err = g.Wait(nil)
	var ended *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("it does not come back from being loaded within %v", s.LoadWait)
	case !errors.As(err, &ended):
		return err
	case !ended.Exited():
		return fmt.Errorf("the process that loaded it crashed: %w", err)
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(said.String(), "ncclmesh: "), "\n")
	return errors.New(cmp.Or(first, err.Error()))
}
