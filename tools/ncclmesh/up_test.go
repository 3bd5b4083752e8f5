package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
	"ncclmesh/tools/ncclmesh/library"
)

// bare are two nodes with a cable of two halves.
const bare = `
port a r0 netdev f0 addr 192.168.3.1/24 cage p0 image A
port a r1 netdev g0 addr 192.168.4.1/24 cage p0 image A
port b r0 netdev f0 addr 192.168.3.2/24 cage p1 image B
port b r1 netdev g0 addr 192.168.4.2/24 cage p1 image B
link a:r0 b:r0 mtu 9000
link a:r1 b:r1 mtu 9000
`

// Two nodes that have nothing get the command, the library and their ports, after a yes alone, and are measured; then nothing has
// to be changed.
func TestUp(t *testing.T) {
	built, err := fabric.Build("nodes", "build")
	if errors.Is(err, fabric.ErrUnable) {
		require.Skip(t, require.Netns, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", built) // where this node has the library
	f, command := nodes(t, bare)
	homes := map[string]string{}
	for _, node := range f.Nodes {
		homes[node] = t.TempDir()
		env := "HOME=" + homes[node] + "\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\nLD_LIBRARY_PATH=" + f.Tools + "\n" + asCommand + "=1"
		if err := os.WriteFile(filepath.Join(f.Dir, "env."+node), []byte(env), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := f.Command(t.Context(), "b", "ip", "link", "set", "g0", "down").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	args := []string{"up", "a", "b", "--user", "--ignore", "machine-id-cloned,mtu-small,speed-low,plugin-other,cable-slow,cable-slow-both-ways"}
	for _, more := range []string{"--plan", ""} { // without a terminal nobody can be asked
		status, stdout, stderr := command(append(args, strings.Fields(more)...)...)
		for _, want := range []string{"copy the command to " + homes["a"], "copy the library to " + homes["b"], "switch the interface g0 on"} {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s: no %q in\n%s", more, want, stdout)
			}
		}
		if wrong := map[bool]int{true: 0, false: statusUsage}[more != ""]; status != wrong {
			t.Errorf("%q: status %d, %s", more, status, stderr)
		}
		if _, err := os.Stat(filepath.Join(homes["a"], ".local")); err == nil {
			t.Errorf("%q has changed something", more)
		}
	}
	status, stdout, stderr := command(append(args, "--yes")...)
	if status != 0 || stderr != "" {
		t.Fatalf("status %d, %s\n%s", status, stderr, stdout)
	}
	for _, want := range []string{`(?m)^a:f0 – b:f0 +[\d.]+ Gb/s → `, `(?m)^a:g0 – b:g0 `, `(?m)^all is well: 2 nodes, 1 cable, 2 halves validated in [\d.]+ s$`, `\nNext: ncclmesh bench coll --push a b\n$`} {
		if !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	for _, home := range homes {
		if _, err := library.Named(filepath.Join(home, ".local/lib", library.Name)); err != nil {
			t.Error(err)
		}
	}
	if status, stdout, stderr := command(append(args, "--plan")...); status != 0 || !strings.Contains(stdout, "nothing has to be changed") {
		t.Errorf("again: status %d, %s\n%s", status, stderr, stdout)
	}
}
