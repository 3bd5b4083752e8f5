package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// interruptible is a context that ends with a signal, also with that of a connection that was lost: what is half done is
// put back then.
func interruptible() (context.Context, func()) {
	return signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
}

// errInterrupted is why a detached process undoes what it does.
var errInterrupted = errors.New("the command was interrupted, or has ended")

// An endedError is the status of another process, which has said why.
type endedError int

func (e endedError) Error() string { return fmt.Sprintf("ended with status %d", int(e)) }

// detach runs this program with other arguments, in a session of its own, and returns how it has ended. A signal to this
// process closes the other's standard input, and so does this process's end, whatever the cause: see [attached].
func detach(sys *system, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return failure{err}
	}
	signals, stop := interruptible()
	defer stop()
	cmd := exec.Command(self, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = sys.environ, sys.stdout, sys.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // neither a terminal's signals nor its end reach it
	alive, err := cmd.StdinPipe()
	if err != nil {
		return failure{err}
	}
	if err := cmd.Start(); err != nil {
		return failure{err}
	}
	interrupted := context.AfterFunc(signals, func() { _ = alive.Close() })
	defer interrupted()
	err = cmd.Wait()
	exited := (*exec.ExitError)(nil)
	switch {
	case !errors.As(err, &exited):
		return err
	case exited.Exited():
		return endedError(exited.ExitCode())
	}
	return failure{fmt.Errorf("the process that did the work was ended: %w", err)}
}

// attached returns a context that also ends when input does, which is at the end of the process that has called [detach],
// or a signal to it. From then on a pipe that nobody reads does not end this process, but fails its writes.
func attached(ctx context.Context, input io.Reader) (context.Context, func()) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // not ignored: what this process starts would ignore it too
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, input)
		cancel(errInterrupted)
	}()
	return ctx, func() { cancel(nil) }
}
