package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ncclmesh/tests/lab"
)

// Commands that cannot succeed fail before anything is downloaded or booted, and say why.
func TestRunRefuses(t *testing.T) {
	tests := []struct {
		name string
		args []string
		err  string
	}{
		{"unknown command", []string{"square"}, `unknown command "square"; there are`},
		{"no job", []string{"triangle"}, "takes one argument"},
		{"two jobs", []string{"ring", "a", "b"}, "takes one argument"},
		{"no such job", []string{"triangle", "/nonexistent/job"}, "/nonexistent/job"},
		{"no such copy", []string{"ring", "--copy", "/nonexistent/file", "/dev/null"}, "/nonexistent/file"},
		{"argument too many", []string{"prepare", "x"}, `prepare takes no argument, not "x"`},
		{"accelerator", []string{"demo", "--accel", "fast"}, `accelerator "fast"; accepted are auto, kvm and tcg`},
		{"plugin not built", []string{"demo", "--plugin", "/nonexistent/plugin.so"}, "/nonexistent/plugin.so: no such file or directory; run make first"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, err := run(t.Context(), tt.args)
			if status != 2 || err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("status %d, %v; want 2 and %q", status, err, tt.err)
			}
		})
	}
}

func TestOnceMore(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithTimeoutCause(t.Context(), 0, errors.New("late"))
	defer cancel()
	<-late.Done()
	died, other := fmt.Errorf("node-a: %w", lab.ErrMachine), errors.New("other")
	tests := []struct {
		name   string
		ctx    context.Context
		errs   []error // of one call after the other
		status int
		calls  int
	}{
		{"passes", t.Context(), []error{nil}, 7, 1},
		{"a machine dies once", t.Context(), []error{died, nil}, 7, 2},
		{"a machine dies twice", t.Context(), []error{died, died}, statusMachine, 2},
		{"other errors are not retried", t.Context(), []error{other}, 1, 1},
		{"interrupted", canceled, []error{died}, statusInterrupted, 1},
		{"out of time", late, []error{died}, statusTimeout, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			calls := 0
			status, _ := onceMore(tt.ctx, nil, func() (int, error) { calls++; return 7, tt.errs[calls-1] })
			if status != tt.status || calls != tt.calls {
				t.Errorf("status %d after %d calls, want %d after %d", status, calls, tt.status, tt.calls)
			}
		})
	}
}
