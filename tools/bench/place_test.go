package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestStartOn(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	cpus, err := processors("")
	if err != nil {
		t.Fatal(err)
	}
	for _, cpu := range cpus {
		var out bytes.Buffer
		cmd := exec.Command("sh", "-c", "grep Cpus_allowed_list /proc/self/status")
		cmd.Stdout = &out
		if err := startOn(cpu, cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if got, want := out.String(), fmt.Sprintf("Cpus_allowed_list:\t%d\n", cpu); got != want {
			t.Errorf("on %d: %q, want %q", cpu, got, want)
		}
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil || after != before {
		t.Errorf("this thread is left on %v, was on %v (%v)", after, before, err)
	}
	if err := startOn(1000, exec.Command("true")); err == nil || !strings.Contains(err.Error(), "processor 1000") {
		t.Errorf("a processor that is not there: %v", err)
	}
}

func TestChoose(t *testing.T) {
	pairs := func(cpu int) string { return fmt.Sprint(cpu / 2) } // two of each core
	tests := []struct {
		name     string
		usable   []int
		siblings func(int) string
		want     []int
	}{
		{"of two cores", []int{2, 3, 4}, pairs, []int{2, 4}},
		{"all of one", []int{2, 3}, pairs, []int{2, 3}},
		{"who knows", []int{1, 2, 3}, func(int) string { return "" }, []int{1, 2}},
		{"one", []int{7}, pairs, []int{7}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, choose(tt.usable, tt.siblings)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestParseProcessors(t *testing.T) {
	usable := func(cpu int) bool { return cpu < 4 }
	tests := []struct {
		list string
		want []int
		err  string
	}{
		{"3,1", []int{3, 1}, ""},
		{"2", []int{2}, ""},
		{"0,4", nil, `"4" is no processor`},
		{"0,-1", nil, `"-1" is no processor`},
		{"0,", nil, `"" is no processor`},
		{"0,1,2", nil, "one for the first rank"},
	}
	for _, tt := range tests {
		got, err := parseProcessors(tt.list, usable)
		if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q (-want +got):\n%s", tt.list, err, tt.err, diff)
		}
	}
}
