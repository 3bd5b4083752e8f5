package path

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// TestDistinct checks that an error which several probes have in common is given once, whatever the numbers of
// the probes.
func TestDistinct(t *testing.T) {
	trial := func(n int, why error) error {
		name := fmt.Sprintf("na -> nc conn %d", n)
		return &probeError{fmt.Errorf("%s: nc says: %w", name, why), name}
	}
	full := errors.New("no descriptors left")
	tests := []struct {
		name string
		errs []error
		want string
	}{
		{"none", []error{nil, nil}, "<nil>"},
		{"one", []error{nil, full}, "no descriptors left"},
		{"one reason of four trials", []error{trial(2, full), trial(3, full), trial(5, full), trial(7, full)}, "na -> nc conn 2: nc says: no descriptors left"},
		{"two reasons", []error{trial(2, full), trial(3, io.EOF), trial(4, full)}, "na -> nc conn 2: nc says: no descriptors left; na -> nc conn 3: nc says: EOF"},
		{"of several before", []error{distinct(trial(2, full), io.EOF), distinct(io.EOF, trial(3, full))}, "na -> nc conn 2: nc says: no descriptors left; EOF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := distinct(tt.errs...)
			if got := fmt.Sprint(err); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if len(tt.errs) > 2 && !errors.Is(err, full) {
				t.Errorf("%v is not the error that it says", err)
			}
		})
	}
}
