package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
)

// A million messages of random sizes, groups and tags, over communicators that come and go. A thread a rank: more would take turns.
func TestSoak(t *testing.T) {
	const want = 1_000_000
	f := newFabric(t, triangle)
	connections := len(f.Nodes) * len(f.Nodes) // every rank to every one
	j := f.start(spec{args: []string{"--work", "soak", "--max", "1K", "--reopen", "100", "--messages", fmt.Sprint(want / connections * 102 / 100)}}).ok()
	m := regexp.MustCompile(`# soak: .* s, (\d+) messages, .* #wrong 0\n`).FindStringSubmatch(j.rank("a").output())
	if m == nil {
		j.fatalf("no figures of the soak")
	}
	if n, err := strconv.Atoi(m[1]); err != nil || n < want {
		j.errorf("%s messages, want %d", m[1], want)
	}
	t.Log(m[0])
}

// Large messages between small ones, cut over two cables.
func TestSoakStriped(t *testing.T) {
	f := newFabric(t, `
port a r0 netdev p0 addr 192.168.1.1/24 speed 100G
port a r1 netdev p1 addr 192.168.2.1/24 speed 50G msg 65536
port b r0 netdev p0 addr 192.168.1.2/24 speed 100G
port b r1 netdev p1 addr 192.168.2.2/24 speed 50G
link a:r0 b:r0
link a:r1 b:r1
`)
	j := f.start(spec{args: []string{"--work", "soak", "--max", "4M", "--messages", "300", "--comms", "2"}}).ok()
	j.must("a", `a -> b conn \d+: lane 0 r0:1 -> r0:1 .*, lane 1 r1:1 -> r1:1 `)
}
