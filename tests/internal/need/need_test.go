package need

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMissing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	file := filepath.Join(dir, "make")
	if err := os.WriteFile(file, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		names []string
		want  string
	}{
		{"nothing", nil, ""},
		{"what is here", []string{"make", file}, ""},
		{"named like its package", []string{"make", "gcc"}, "not installed: gcc; apt-get install gcc"},
		{"named otherwise", []string{"ip"}, "not installed: ip; apt-get install iproute2"},
		{"a file", []string{"/no/such.h", "make"}, "not installed: /no/such.h; apt-get install /no/such.h"},
		{"two of a package", []string{"nm", "strip", "cc"}, "not installed: nm, strip, cc; apt-get install binutils gcc"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := Missing(tt.names...); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
