package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ncclmesh/handshake"
	"ncclmesh/printable"
)

// What a host answers, or its agent's error, clears no terminal and forges no line, whatever command asks.
func TestHostileHost(t *testing.T) {
	const hostile = `x\u001b[2J\u009b1A\u202e\nFORGED: all is well`
	tests := []struct{ name, args, answer, want string }{
		{"doctor", "doctor", "", "x?[2J?1A?; FORGED"},
		{"topo", "topo", "", "x?[2J?1A?; FORGED"},
		{"bench", "bench link", "", "x?[2J?1A?; FORGED"},
		{"run", "run --no-plugin", "", "x?[2J?1A?; FORGED"},
		{"topo, a name", "topo", `{"node":"` + hostile + `","ports":[{"netdev":"` + hostile + `"}]}`, ""},
		{"run, an objection", "run --no-plugin", `{"ready":{"address":"` + hostile + `","port":1,"env":[],"against":["` + hostile + `"]}}`, "x?[2J?1A? FORGED"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			said := filepath.Join(t.TempDir(), "said")
			text := fmt.Sprintf("{\"hello\":{\"schema\":\"ncclmesh.agent/1\",\"build\":\"%s\",\"protocol\":%d}}\n", hostile, handshake.Version)
			if tt.answer != "" {
				text += `{"answer":` + tt.answer + "}\n"
			}
			text += `{"end":{"error":"` + hostile + "\"}}\n"
			if err := os.WriteFile(said, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var stdout, stderr bytes.Buffer
			sys := &system{append(os.Environ(), "NCCLMESH_SSH=sh -c cat<"+said, "GORACE=atexit_sleep_ms=0"), &stdout, &stderr}
			args := append(strings.Fields(tt.args), "evil")
			if args[0] == "run" {
				args = append(args, "--", "true")
			}
			run(sys, args)
			all := stdout.String() + stderr.String()
			if tt.want != "" && !strings.Contains(all, tt.want) {
				t.Errorf("%v shows\n%q\nand not %q", args, all, tt.want)
			}
			for line := range strings.Lines(all) {
				line = strings.TrimSuffix(line, "\n")
				if strings.HasPrefix(line, "FORGED") || printable.Line(line, len(line)) != line {
					t.Errorf("%v shows %q", args, line)
				}
			}
		})
	}
}
