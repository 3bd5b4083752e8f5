package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"ncclmesh/docs/checks"
)

// What is wrong with a call or the environment is one clear line, and status 2.
func TestWrongly(t *testing.T) {
	dir := t.TempDir()
	key := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		env  []string
		args string
		want []string
	}{
		{"no such command", nil, "rely", []string{`ncclmesh: unknown command "rely" for "ncclmesh"; did you mean relay?`}},
		{"an argument", nil, "relay now", []string{"now"}},
		{"no such flag", nil, "relay --fast", []string{"unknown flag: --fast"}},
		{"a time below 0", nil, "relay --drain -1s", []string{"--drain -1s: want 0 or more"}},
		{"no pause", nil, "status --interval 0s", []string{"--interval 0s: want 10ms or more"}},
		{"two places", nil, "metrics --listen :1 --textfile .", []string{"listen textfile"}},
		{"no port", nil, "metrics --listen localhost", []string{"--listen localhost", "want HOST:PORT"}},
		{"a value", []string{"NCCL_MESH_TRANSPORT=ether"}, "relay", []string{`NCCL_MESH_TRANSPORT="ether"`, "want auto, rdma or tcp"}},
		{"no relaying", []string{"NCCL_MESH_RELAY=0"}, "relay", []string{"NCCL_MESH_RELAY=0", "unset it"}},
		{"no key file", nil, "relay --key-file " + filepath.Join(dir, "none"), []string{"read the key", "no such file"}},
		{"a key that others read", nil, "relay --key-file " + key("open", "secret of all nodes\n", 0o640), []string{"mode 0640", "chmod 600 " + dir}},
		{"an empty key", nil, "relay --key-file " + key("empty", "\n", 0o600), []string{"/empty: it has 0 characters", "want 16 or more", "openssl rand -base64 24"}},
		{"a short key", nil, "relay --key-file " + key("short", "secret\n", 0o600), []string{"/short: it has 6 characters"}},
		{"a short key in the environment", []string{"NCCL_MESH_KEY=secret"}, "relay", []string{`NCCL_MESH_KEY="(set)": it has 6 characters`}},
		{"a short key of a rank", []string{"NCCL_MESH_KEY=secret", "LOCAL_RANK=0", "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=localhost"}, "topo --rank-env", []string{"NCCL_MESH_KEY: it has 6 characters"}},
		{"a long key", nil, "relay --key-file " + key("long", strings.Repeat("x", maxKey+1), 0o600), []string{"has 4097 bytes; want 4096 at most"}},
		{"a directory", nil, "relay --key-file " + dir, []string{"is a directory; want a regular file"}},
		{"a pipe", nil, "relay --key-file " + pipe, []string{"is a named pipe; want a regular file"}},
		{"a device", nil, "relay --key-file /dev/zero", []string{"is a device; want a regular file"}},
		{"no plugin there", nil, "env --library " + filepath.Join(dir, "none.so"), []string{"--library ", "none.so does not exist"}},
		{"no plugin", nil, "env --library " + key("text.so", "text", 0o644), []string{"text.so: not this project's library"}},
		{"a range", nil, "netplan --range fd00::/8", []string{"--range fd00::/8: want an IPv4 prefix of 8 to 22 bits"}},
		{"no time", nil, "netplan --listen 0s", []string{"--listen 0s: want more than 0"}},
		{"no interface", nil, "netplan --interface nosuch0", []string{"--interface nosuch0: there is no such interface; there are "}},
		{"no hosts", nil, "run -- true", []string{"want hosts, then -- and a command"}},
		{"no command", nil, "run a b --", []string{"want hosts, then -- and a command"}},
		{"no line between", nil, "run a b", []string{"want hosts, then -- and a command"}},
		{"no processes", nil, "run --per-host 0 a -- true", []string{"--per-host 0: want 1 to 1024"}},
		{"no port", nil, "run --master-port 70000 a -- true", []string{"--master-port 70000: want 1 to 65535"}},
		{"an address with its port", nil, "run --master-addr a:1 a -- true", []string{"--master-addr a:1: want it without a port"}},
		{"a variable without a name", nil, "run --env =1 a -- true", []string{"--env =1: want NAME=VALUE or NAME"}},
		{"a variable that is not set", nil, "run --env NOSUCH a -- true", []string{"--env NOSUCH: it is not set here"}},
		{"a host twice", nil, "run a a -- true", []string{"host a is named twice"}},
		{"no log", nil, "report --log " + filepath.Join(dir, "none.log"), []string{"none.log: want a file", "no such file"}},
		{"two keys", []string{"NCCL_MESH_KEY=this one of all nodes"}, "relay --key-file " + key("fine", "that one of all nodes\n", 0o600), []string{"both given"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if status := run(&system{tt.env, &stdout, &stderr}, strings.Fields(tt.args)); status != statusUsage {
				t.Errorf("status %d, want %d", status, statusUsage)
			}
			said := stderr.String()
			for _, want := range tt.want {
				if !strings.Contains(said, want) {
					t.Errorf("it says %q, and not %q", said, want)
				}
			}
			if strings.Contains(said, "secret") || stdout.Len() > 0 {
				t.Errorf("it says %q, and %q", said, &stdout)
			}
		})
	}
}

// A key comes from a file without what an editor leaves around it.
func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte("  the one of all nodes\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	c, err := settings(&system{environ: []string{"NCCL_MESH_LANE_WAIT=3"}}, path)
	if err != nil || c.Transport.Key != "the one of all nodes" || !c.Transport.Dedicated || c.Transport.LaneWait.Seconds() != 3 {
		t.Errorf("%+v, %v", c.Transport, err)
	}
}

// Shells are offered the checks with their titles, also in a list; so does the list of all of them.
func TestTitles(t *testing.T) {
	tests := []struct{ args, want string }{
		{"explain", "\nport-down             A tool reports PORT_DOWN, or a cable carries nothing\n"},
		{"__complete explain port", "\nport-down\tA tool reports PORT_DOWN, or a cable carries nothing\n"},
		{"__complete doctor --only memlock,port", "\nmemlock,port-down\tA tool reports PORT_DOWN, or a cable carries nothing\n"},
		{"__complete bench nccl --op all", "all_reduce\tsums, to all ranks\n"},
	}
	for _, tt := range tests {
		var stdout, stderr bytes.Buffer
		status := run(&system{nil, &stdout, &stderr}, strings.Fields(tt.args))
		if status != 0 || !strings.Contains("\n"+stdout.String(), tt.want) {
			t.Errorf("%s: status %d, %s, no %q in\n%s", tt.args, status, &stderr, tt.want, &stdout)
		}
	}
	for _, id := range checks.IDs() {
		if text := title(id, 56); text == "" || utf8.RuneCountInString(text) > 56 {
			t.Errorf("%s has the title %q", id, text)
		}
	}
}

func TestHelp(t *testing.T) {
	tests := []struct {
		args string
		want []string
	}{
		{"--version", []string{"ncclmesh 1.0-dev", ", protocol "}},
		{"--help", []string{"bench ", "relay ", "topo ", "env ", "netplan ", "report ", "run ", "version ", "completion "}},
		{"topo --help", []string{"Examples:\n", "--expect FILE", "--ssh COMMAND", "--push", "BatchMode=yes"}},
		{"bench --help", []string{"link ", "coll ", "--while-busy"}},
		{"bench link --help", []string{"--size BYTES", "--time TIME", "--while-busy", "--svg FILE"}},
		{"bench coll --help", []string{"--minbytes BYTES", "--op KINDS", "nccl-tests"}},
		{"relay --help", []string{"Examples:\n", "ncclmesh relay --key-file ", "--drain TIME", "(default 30s)", "--verbose"}},
		{"status --help", []string{"--watch", "--json", "ncclmesh.status/1", "LANES counts"}},
		{"metrics --help", []string{"--listen ADDR", "--textfile DIR", "ncclmesh.prom"}},
		{"completion bash", []string{"ncclmesh"}},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if status := run(&system{nil, &stdout, &stderr}, strings.Fields(tt.args)); status != 0 || stderr.Len() > 0 {
				t.Errorf("status %d, it says %q", status, &stderr)
			}
			for _, want := range tt.want {
				if !strings.Contains(stdout.String(), want) {
					t.Errorf("it says %q, and not %q", &stdout, want)
				}
			}
		})
	}
}
