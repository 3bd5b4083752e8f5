package require

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recorder is a test whose end is written down.
type recorder struct {
	testing.TB
	end string
}

func (r *recorder) Helper() {}

func (r *recorder) Skipf(format string, args ...any) { r.set("skip: " + fmt.Sprintf(format, args...)) }

func (r *recorder) Fatalf(format string, args ...any) { r.set("fail: " + fmt.Sprintf(format, args...)) }

func (r *recorder) set(end string) {
	if r.end == "" { // the first would have ended it
		r.end = end
	}
}

func TestTools(t *testing.T) {
	t.Setenv(Variable, "")
	for name, want := range map[string]string{
		"go":           "",
		"no-such-tool": "skip: skipped for want of cc: not installed: no-such-tool; apt-get install no-such-tool",
	} {
		r := &recorder{TB: t}
		Tools(r, CC, "go", name)
		if diff := cmp.Diff(want, r.end); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestSkip(t *testing.T) {
	const skipped = "skip: skipped for want of %[1]s: no luck"
	const failed = "fail: MESH_TEST_REQUIRE=%[2]s requires %[1]s: no luck"
	tests := []struct{ required, what, want string }{
		{"", Fake, skipped},
		{Netns, Fake, skipped},
		{Fake, Fake, failed},
		{Netns + "," + Fake, Fake, failed},
		{"all", Fake, failed},
		{"all", Lab, skipped},
		{"all," + Lab, Lab, failed},
		{Lab, Lab, failed},
		{"all", GPU, skipped},
		{GPU, GPU, failed},
		{"all", Systemd, skipped},
		{"all", Time, skipped},
		{"all," + Time, Time, failed},
	}
	for _, tt := range tests {
		t.Run(tt.required+"/"+tt.what, func(t *testing.T) {
			t.Setenv(Variable, tt.required)
			r := &recorder{TB: t}
			Skip(r, tt.what, "no luck")
			want := fmt.Sprintf(tt.want, tt.what, tt.required)
			if diff := cmp.Diff(want, r.end); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFull(t *testing.T) {
	const skipped, failed = "skip: skipped for want of time: FULL=1 runs it; the gate has another", "fail: MESH_TEST_REQUIRE=time requires time: FULL=1 runs it; the gate has another"
	tests := []struct{ full, required, want string }{
		{"", "", skipped},
		{"0", "", skipped},
		{"", "all", skipped},
		{"", Time, failed},
		{"1", "", ""},
		{"1", Time, ""},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("FULL=%s %s=%s", tt.full, Variable, tt.required), func(t *testing.T) {
			t.Setenv("FULL", tt.full)
			t.Setenv(Variable, tt.required)
			r := &recorder{TB: t}
			Full(r, "another")
			if diff := cmp.Diff(tt.want, r.end); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
