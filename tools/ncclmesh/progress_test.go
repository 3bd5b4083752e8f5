package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What is done in two seconds needs no word; then a line says what goes on and for how long, in the width there is, and goes in the
// end.
func TestProgress(t *testing.T) {
	tests := []struct {
		name  string
		width int
		lasts time.Duration
		want  []string
	}{
		{"short", 80, 1900 * time.Millisecond, []string{""}},
		{"long", 80, 3500 * time.Millisecond, []string{"first … 2 s", "second one … 3 s", ""}},
		{"narrow", 16, 2500 * time.Millisecond, []string{"first … 2 s", ""}},
		{"narrower", 13, 2500 * time.Millisecond, []string{"fir … 2 s", ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				p := &progress{text: "first", done: make(chan struct{})}
				p.begin(&out, func() int { return tt.width })
				time.Sleep(min(tt.lasts, 2500*time.Millisecond))
				p.say("second one")
				time.Sleep(tt.lasts - 2500*time.Millisecond)
				p.end()
				if got := strings.Split(out.String(), clearLine)[1:]; strings.Join(got, "|") != strings.Join(tt.want, "|") {
					t.Errorf("%q, want %q", got, tt.want)
				}
			})
		})
	}
}
