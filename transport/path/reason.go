package path

import (
	"errors"
	"strings"

	"ncclmesh/transport/control"
)

// reasons are the errors of several trials, each of which is given once.
type reasons []error

// Error returns the errors in one line.
func (r reasons) Error() string {
	said := make([]string, len(r))
	for i, err := range r {
		said[i] = err.Error()
	}
	return strings.Join(said, "; ")
}

func (r reasons) Unwrap() []error { return r }

// trialError is the error of a trial, whose number means nothing to people.
type probeError struct {
	error
	probe string
}

func (e *probeError) Unwrap() error { return e.error }

// reason is what an error says, but for the name of the trial.
func reason(err error) string {
	var e *probeError
	if errors.As(err, &e) {
		return strings.ReplaceAll(err.Error(), e.probe, "")
	}
	return err.Error()
}

// join returns one error for two of what was tried to reach the peer of a session, either of which may be nil. A reason
// that both give is given once. Where the session has ended, everything that is tried later fails for that, and the first
// error says why.
func join(s *control.Session, first, second error) error {
	switch {
	case first == nil:
		return second
	case second == nil, !s.Alive():
		return first
	}
	return distinct(first, second)
}

// distinct returns one error for several, each reason once; nil ones are left out.
func distinct(errs ...error) error {
	var all reasons
	known := map[string]bool{}
	for _, err := range errs {
		some, ok := err.(reasons)
		if !ok && err != nil {
			some = reasons{err}
		}
		for _, err := range some {
			if r := reason(err); !known[r] {
				known[r] = true
				all = append(all, err)
			}
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return all
}
