package path

import (
	"errors"
	"strings"

	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/routing"
)

// reasons is a list of errors with different texts.
type reasons []error

// Error returns all texts in one line.
func (r reasons) Error() string {
	said := make([]string, len(r))
	for i, err := range r {
		said[i] = err.Error()
	}
	return strings.Join(said, "; ")
}

func (r reasons) Unwrap() []error { return r }

// probeError is the error of a probe connection. Messages to the user omit the name of that connection,
// because the user cannot do anything with it.
type probeError struct {
	error
	probe string
}

func (e *probeError) Unwrap() error { return e.error }

// reason returns the text of an error without the name of the probe connection.
func reason(err error) string {
	var e *probeError
	if errors.As(err, &e) {
		return strings.ReplaceAll(err.Error(), e.probe, "")
	}
	return err.Error()
}

// noPathError is the error of a search that has found neither a direct path (error) nor a relayed one (relayed). Its kind
// is that of the first; the [routing.NoRouteError] of the second can be had by errors.As.
type noPathError struct {
	error
	relayed error
}

func (e *noPathError) Error() string {
	return e.error.Error() + ". There is no route through other nodes either: " + fault.OneLine(e.relayed)
}

func (e *noPathError) Unwrap() error { return e.error }

// As finds the reason why there is no route.
func (e *noPathError) As(target any) bool {
	none, ok := target.(**routing.NoRouteError)
	return ok && errors.As(e.relayed, none)
}

// join joins the errors of two attempts to reach the peer of a session; either may be nil. If the session has
// ended it returns the first only, because the end of the session causes all later errors.
func join(s *control.Session, first, second error) error {
	switch {
	case first == nil:
		return second
	case second == nil, !s.Alive():
		return first
	}
	return distinct(first, second)
}

// distinct joins errors with different texts. It ignores nil errors.
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
