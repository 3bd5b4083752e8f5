package e2e

import (
	"strings"
	"testing"
)

// An interface is set down while its RDMA port goes on working: each connection gives its lane up once, whatever joins meanwhile, and has it
// again when the interface is up.
func TestInterfaceDown(t *testing.T) {
	t.Parallel()
	f := newFabric(t, four.topology())
	j := f.start(spec{args: f.endless("--work soak --max 64K")})
	j.moves()
	j.suffer("ip a link set ab1 down")
	j.await("a", `port 1 changed`)
	j.await("b", `port 1 changed`)
	j.suffer("down a:rab0", "moves", "up a:rab0") // the lanes that come back find one over a port without a carrier
	j.times(4, "a", `rab0:1 -> rab0:1 has come back`)
	j.suffer("moves", "moves", "moves")
	for _, h := range j.halves() {
		n := 0
		for _, lane := range h.lost {
			if strings.HasSuffix(lane, "rab1:1 -> rab1:1") {
				n++
			}
		}
		if n != h.ends {
			j.errorf("node %s, %s: lanes over the interface were given up %d times, want %d", h.node, h.conn, n, h.ends)
		}
	}
	j.suffer("ip a link set ab1 up")
	j.times(4, "a", `rab1:1 -> rab1:1 has come back`)
	j.enough().ok()
}
