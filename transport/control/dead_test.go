package control

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/tests/sim/hosts"
)

// bothWays makes a session in each direction between two nodes. It returns a's ends.
func bothWays(t *hosts.Test, a, b *node) (dialled, accepted *Session) {
	t.Helper()
	_, back := a.invite()
	b.send(b.dial(back), &handshake.Connected{Conn: 1})
	_, h := b.invite()
	s := a.dial(h)
	a.send(s, &handshake.Connected{})
	t.Until("b to have the session", func() bool { return s.Unanswered() == 0 })
	return s, a.first()
}

// kill ends the node's process as SIGKILL does.
func (n *node) kill() {
	n.killed = true
	n.process.Kill()
}

// TestKilledPeer: sessions in both directions end, because the peer's address is known and now refuses.
func TestKilledPeer(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		n, peer := newNode(t, nil), newNode(t, func(c *Config) { c.Hostname = "peer" })
		dialled, accepted := bothWays(t, n, peer)
		start := time.Now()
		peer.kill()
		for _, s := range []*Session{dialled, accepted} {
			err := n.died(s)
			var e *PeerError
			if !errors.As(err, &e) || !e.Dead || e.Peer != "peer" || !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("Dead (dialled: %v): %v, want a PeerError of a dead peer", s.Dialled(), err)
			}
			if s.Alive() {
				t.Error("the session is alive")
			}
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
		if got := n.Stats(); got.Dead != 2 || got.Sessions != 0 {
			t.Errorf("stats: %+v", got)
		}
	})
}

// TestStoppedPeer: a process that is stopped for a while, for example while it loads a model, is not dead.
func TestStoppedPeer(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		n, peer := newNode(t, nil), newNode(t, nil)
		dialled, accepted := bothWays(t, n, peer)
		const stop = 10 * laneWait
		peer.process.Stop(stop)
		for _, m := range conns(1, 100) {
			n.send(dialled, m)
			n.send(accepted, m)
		}
		t.Sleep(stop - time.Second)
		if !dialled.Alive() || !accepted.Alive() || dialled.Unanswered() < stop-2*time.Second {
			t.Fatalf("a stopped peer was given up, or answered for: %v, %v, unanswered for %v", dialled.Alive(), accepted.Alive(), dialled.Unanswered())
		}
		t.Sleep(2 * time.Second)
		if err := peer.Close(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(n.died(dialled), n.died(accepted)); err != nil {
			t.Errorf("Dead: %v", err)
		}
	})
}
