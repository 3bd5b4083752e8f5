package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// The help of every command fits into 80 columns, each flag with the name of its argument.
func TestHelpFits(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		var stdout, stderr bytes.Buffer
		if status := run(&system{nil, &stdout, &stderr}, args); status != 0 || stderr.Len() > 0 {
			t.Errorf("%q: status %d, %s", args, status, &stderr)
		}
		if c.Name() == "completion" || c.HasParent() && c.Parent().Name() == "completion" {
			return // cobra's
		}
		for line := range strings.Lines(stdout.String()) {
			if line = strings.TrimRight(line, "\n"); utf8.RuneCountInString(line) > 80 {
				t.Errorf("%q: %d columns: %s", args, utf8.RuneCountInString(line), line)
			}
			for _, kind := range []string{" int ", " duration ", " strings ", " string "} {
				if strings.HasPrefix(strings.TrimSpace(line), "-") && strings.Contains(line, kind) {
					t.Errorf("%q: an argument without a name: %s", args, line)
				}
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(command(&system{nil, &bytes.Buffer{}, &bytes.Buffer{}}))
}

// A shell is offered the hosts that ssh knows by name.
func TestCompleteHosts(t *testing.T) {
	home := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(home, ".ssh"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, ".ssh", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	complete := func(args ...string) []string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if status := run(&system{[]string{"HOME=" + home}, &stdout, &stderr}, append([]string{cobra.ShellCompRequestCmd}, args...)); status != 0 {
			t.Fatalf("status %d, %s", status, &stderr)
		}
		var names []string
		for line := range strings.Lines(stdout.String()) {
			name, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			names = append(names, name)
		}
		return names
	}
	if got := complete("topo", ""); !slices.Equal(got, []string{"localhost", ":4"}) {
		t.Errorf("without files: %q", got)
	}
	write("config", "# mine\nHost spark-1 spark-*\n  HostName 10.0.0.1\nhost=spark-2\n")
	write("known_hosts", "|1|aGFzaA==|aGFzaA== ssh-ed25519 AAAA\nspark-2,10.0.0.2 ssh-ed25519 AAAA\n[spark-3]:22 ssh-ed25519 AAAA\n@cert-authority *.x ssh-rsa AAAA\n")
	for _, command := range [][]string{{"doctor", ""}, {"topo", ""}, {"bench", "link", ""}, {"bench", "nccl", ""}, {"run", ""}, {"up", ""}, {"report", ""}} {
		if diff := cmp.Diff([]string{"localhost", "spark-1", "spark-2", "10.0.0.2", ":4"}, complete(command...)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", command, diff)
		}
	}
	if got := complete("topo", "spark-1", ""); slices.Contains(got, "spark-1") {
		t.Errorf("a host that is named already is offered: %q", got)
	}
	if got := complete("run", "spark-1", "--", ""); !slices.Equal(got, []string{":0"}) {
		t.Errorf("for a command: %q", got)
	}
}
