package ncclnet

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A listener without a connection is logged once, with the settings that must be equal on all ranks. A listener that
// has had its connection, or was closed, is not.
func TestAlone(t *testing.T) {
	tests := []struct {
		name string
		do   func(n *testNet, ctx Handle)
		want int
	}{
		{"nobody comes", func(n *testNet, ctx Handle) {
			for range 3 {
				_, _, r := n.Listen(ctx, 0)
				n.ok("listen", r)
			}
		}, 1},
		{"somebody came", func(n *testNet, ctx Handle) { n.connection(ctx) }, 0},
		{"somebody came, and the listener stands", func(n *testNet, ctx Handle) {
			l, wire, r := n.Listen(ctx, 0)
			n.ok("listen", r)
			_, r = n.Connect(ctx, 0, &wire)
			n.ok("connect", r)
			_, r = n.Accept(l)
			n.ok("accept", r)
		}, 0},
		{"closed", func(n *testNet, ctx Handle) {
			l, _, r := n.Listen(ctx, 0)
			n.ok("listen", r)
			n.ok("closeListen", n.CloseListen(l))
		}, 0},
		{"finalized", func(n *testNet, ctx Handle) {
			_, _, r := n.Listen(ctx, 0)
			n.ok("listen", r)
			n.ok("finalize", n.Finalize(ctx))
		}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestNet(t)
				n.env["NCCL_ALGO"] = "Tree"
				ctx := n.init()
				tt.do(n, ctx)
				n.logged()
				time.Sleep(noPeerWait - 1)
				synctest.Wait()
				if log := n.logged(); log != "" {
					t.Errorf("too early: %s", log)
				}
				time.Sleep(2 * noPeerWait)
				synctest.Wait()
				log := n.logged()
				if got := strings.Count(log, "2 NET/Mesh : this rank has waited 60 s for another to connect. "); got != tt.want {
					t.Errorf("said %d times, want %d: %s", got, tt.want, log)
				}
				if settings := "which are NCCL_MESH_TUNER=1, NCCL_MESH_TOPOLOGY=auto, NCCL_ALGO=tree here"; tt.want > 0 && !strings.Contains(log, settings) {
					t.Errorf("%s\nwant %q in it", log, settings)
				}
			})
		})
	}
}
