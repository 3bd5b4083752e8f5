package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ncclmesh/tests/fabric"
)

// nowhere is a bench whose nodes are this machine, with works that are scripts.
func nowhere(t *testing.T) (*bench, func(script string) work) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, script string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("fakenet", `shift 4; exec "$@"`) // exec -d DIR NODE PROGRAM
	cpus, err := processors("")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{ctx: t.Context(), o: options{runs: 1}, cpus: cpus, up: &fabric.Fabric{Tools: dir, Dir: dir}}
	return b, func(script string) work { return work{program: write("program", script)} }
}

// The first rank answers each line; the second ends with the first.
const answers = `
[ "$2" = 0 ] || exit 0
n=0
while read -r line; do n=$((n+1)); echo "{\"us\": $n}"; done
`

func TestSlicer(t *testing.T) {
	b, script := nowhere(t)
	s, err := b.slicer(script(answers), meetAt)
	if err != nil {
		t.Fatal(err)
	}
	for want := 2.0; want < 5; want++ { // the first was to warm it
		if got, err := s.next(); err != nil || got.Micros != want {
			t.Errorf("%v, %v; want %g", got.Micros, err, want)
		}
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

func TestSliced(t *testing.T) {
	b, script := nowhere(t)
	w := script(answers)
	c := contender{side: side{of: micros, work: func(*bench, string) work { return w }}}
	for first := range 2 {
		pairs, err := b.sliced([2]contender{c, c}, first, 0.01)
		if err != nil || len(pairs) != 1 || pairs[0].Ratio != 1 || pairs[0].Value < 2 {
			t.Errorf("%+v, %v; want both to have come as far", pairs, err)
		}
	}
}

func TestSlicerSaysWhatFailed(t *testing.T) {
	tests := []struct{ name, script, want string }{
		{"ends at once", `[ $2 = 0 ] && { echo "no device" >&2; exit 3; }; exec sleep 60`, "a: no device"},
		{"the other ends", `[ $2 = 1 ] && { echo "no plugin" >&2; exit 3; }; exec sleep 60`, "b: no plugin"},
		{"babbles", `[ $2 = 1 ] || { read -r line; echo hello; }`, `printed "hello`},
		{"is not ready", `echo "RNR" >&2; exit 1`, "RNR"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, script := nowhere(t)
			_, err := b.slicer(script(tt.script), meetAt)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if wantRNR := tt.name == "is not ready"; (b.rnr > 0) != wantRNR {
				t.Errorf("%d receivers not ready", b.rnr)
			}
		})
	}
}

func TestInterrupted(t *testing.T) {
	b, script := nowhere(t)
	ctx, cancel := context.WithCancel(t.Context())
	b.ctx = ctx
	s, err := b.slicer(script(answers), meetAt)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for err == nil {
		_, err = s.next()
	}
	if err := s.close(); err == nil {
		t.Error("a slicer that was killed has ended well")
	}
}
