package guard

import (
	"errors"
	"strings"
	"testing"
)

func TestDo(t *testing.T) {
	own := errors.New("own")
	tests := []struct {
		name string
		f    func() error
		want string
	}{
		{"nothing", func() error { return nil }, ""},
		{"an error", func() error { return own }, "own"},
		{"a panic", func() error { panic("lost") }, "panic: lost"},
		{"a fault", func() error { var p *int; *p = 1; return nil }, "panic: runtime error: invalid memory address or nil pointer dereference"},
	}
	for _, tt := range tests {
		err := Do(tt.f)
		if got := ""; err != nil {
			if got = err.Error(); got != tt.want {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
		} else if tt.want != "" {
			t.Errorf("%s: no error, want %q", tt.name, tt.want)
		}
	}
}

func culprit() { panic("lost") }

// The report names the function that panicked.
func TestRun(t *testing.T) {
	var got *Panic
	Run(culprit, func(p *Panic) { got = p })
	if got == nil || !strings.Contains(got.Report(), "guard.culprit") {
		t.Errorf("caught %v, want a stack with culprit", got)
	}
	Run(func() {}, func(p *Panic) { t.Errorf("caught %v without a panic", p) })
}
