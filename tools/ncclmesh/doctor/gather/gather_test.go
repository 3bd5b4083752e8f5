package gather

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/transport/topology"
)

// What stands in a machine's files is anybody's: nothing in them ends the looking, and a secret
// does not leave the node.
func FuzzFiles(f *testing.F) {
	f.Add("Max locked memory 65536 65536 bytes", "MemTotal: 1 kB", "7f-8f r-xp 0 0 0 /a/libnccl.so.2", "NCCL_DEBUG=INFO", "LD_PRELOAD=/x:/y\x00NCCL_NET_PLUGIN=a/b")
	f.Add("Max locked memory", "MemTotal: x kB\nMemFree:", "/", "=\n#\nNCCL_MESH_KEY=hunter2", "NCCL_DEBUG_FILE=\x00NCCL_MESH_KEY=hunter2\x00=")
	root := f.TempDir()
	f.Fuzz(func(t *testing.T, limits, meminfo, maps, conf, environ string) {
		for name, content := range map[string]string{
			"proc/7/limits": limits, "proc/meminfo": meminfo, "proc/7/maps": maps, "etc/nccl.conf": conf, "proc/7/root/etc/nccl.conf": conf, "proc/7/environ": environ,
		} {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(filepath.Join(root, "sys"), 0o755); err != nil {
			t.Fatal(err)
		}
		n := Node(Source{
			Root: root, PID: 7, Links: func() ([]topology.Link, error) { return nil, nil }, Routes: func() ([]facts.Route, error) { return nil, nil },
		})
		env, _ := n.Process.Env.Get()
		lines, _ := n.Process.Conf.Get()
		if v := env[secret]; v != "" && v != "(set)" {
			t.Errorf("the key is told: %q", v)
		}
		if slices.ContainsFunc(lines, func(l facts.Line) bool { return l.Name == secret && l.Value != "(set)" }) {
			t.Errorf("the key is told: %v", lines)
		}
	})
}

// A name is found as a whole word alone.
func TestMentions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"": false, "eth0": true, "  eth0:\n": true, "interface-name=eth0\n": true, "eth0.7": false, "veth0": false, "eth01": false, "eth01 eth0": true, "Name=eth0 eth1": true,
	} {
		if got := mentions([]byte(text), "eth0"); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// NCCL's version is found wherever it stands, across the pieces that are read at once too.
func TestVersionOf(t *testing.T) {
	t.Parallel()
	for _, before := range []int{0, 1<<20 - 20, 1<<20 - 1, 3 << 20} {
		path := filepath.Join(t.TempDir(), "libnccl.so.2")
		if err := os.WriteFile(path, []byte(strings.Repeat("x", before)+"NCCL version 2.29.7+cuda13.0"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := versionOf(path); got != "2.29.7" {
			t.Errorf("after %d bytes: %q", before, got)
		}
	}
	if got := versionOf("/no/such"); got != "" {
		t.Errorf("%q", got)
	}
}
