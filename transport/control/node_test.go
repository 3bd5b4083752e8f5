package control

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/tests/sim/hosts"
)

// hang limits every wait of these tests, in virtual time.
const hang = 5 * time.Minute

var loopback = netip.MustParseAddr("127.0.0.1")

// node is an endpoint that records its callbacks.
type node struct {
	*Endpoint
	t       *hosts.Test
	process *hosts.Process
	killed  bool

	mu   sync.Mutex
	got  map[*Session][]handshake.Message
	dead map[*Session]error
	seen []*Session // by first message
	log  strings.Builder
	cond *sync.Cond
}

// newNode makes an endpoint of a separate process, on the host that most tests use.
func newNode(t *hosts.Test, change func(*Config)) *node {
	t.Helper()
	return newNodeOn(t, "host", change)
}

// newNodeOn makes an endpoint of a separate process on a host.
func newNodeOn(t *hosts.Test, host string, change func(*Config)) *node {
	t.Helper()
	n := &node{t: t, process: t.Process(host), got: make(map[*Session][]handshake.Message), dead: make(map[*Session]error)}
	n.cond = sync.NewCond(&n.mu)
	cfg := Config{
		Process:  handshake.NewProcessID(n.process.Random()),
		Node:     handshake.NodeID{1},
		Hostname: strings.ReplaceAll(t.Name(), "/", "-"),
		Addrs:    []netip.Addr{loopback},
		Network:  n.process,
		Clock:    n.process.Clock(),
		Log:      slog.New(slog.NewTextHandler(n, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Message: func(s *Session, m handshake.Message) {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.got[s] == nil {
				n.seen = append(n.seen, s)
			}
			n.got[s] = append(n.got[s], m)
			n.cond.Broadcast()
		},
		Dead: func(s *Session, err error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			if _, ok := n.dead[s]; ok {
				t.Errorf("Dead was called twice for one session")
			}
			n.dead[s] = err
			n.cond.Broadcast()
		},
	}
	cfg.Random = n.process.Random().For(cfg.Process)
	if change != nil {
		change(&cfg)
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.Endpoint = e
	t.Cleanup(func() {
		if err := n.Close(); err != nil && !n.killed { // the listener of a killed process is gone
			t.Errorf("close: %v", err)
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", cfg.Process, n.logged())
		}
	})
	return n
}

// Write takes the log.
func (n *node) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.Write(b)
}

func (n *node) logged() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.String()
}

// until waits for a condition on the recorded callbacks.
func (n *node) until(what string, f func() bool) {
	n.t.Helper()
	guard := time.AfterFunc(hang, n.cond.Broadcast)
	defer guard.Stop()
	start := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	for !f() {
		if time.Since(start) >= hang {
			n.t.Fatalf("still waiting for %s", what)
		}
		n.cond.Wait()
	}
}

// messages waits for count messages of a session and returns all of them.
func (n *node) messages(s *Session, count int) []handshake.Message {
	n.t.Helper()
	n.until(fmt.Sprintf("%d messages", count), func() bool { return len(n.got[s]) >= count })
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.got[s]
}

// first waits for the first session that sent something.
func (n *node) first() *Session {
	n.t.Helper()
	n.until("a session", func() bool { return len(n.seen) > 0 })
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen[0]
}

// died waits for the end of a session and returns its error.
func (n *node) died(s *Session) error {
	n.t.Helper()
	n.until("the end of the session", func() bool { _, ok := n.dead[s]; return ok })
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dead[s]
}

func (n *node) invite() (*Listen, handshake.Handle) {
	n.t.Helper()
	l, err := n.Listen()
	if err != nil {
		n.t.Fatal(err)
	}
	b := l.Handle()
	h, err := handshake.DecodeHandle(&b)
	if err != nil {
		n.t.Fatal(err)
	}
	return l, h
}

func (n *node) dial(h handshake.Handle) *Session {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	s, err := n.Dial(ctx, h)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

func (n *node) send(s *Session, m handshake.Message) {
	n.t.Helper()
	if err := s.Send(m); err != nil {
		n.t.Fatal(err)
	}
}

// conns makes messages that can be told apart.
func conns(from, to uint32) (m []handshake.Message) {
	for i := from; i <= to; i++ {
		m = append(m, &handshake.Connected{Conn: i})
	}
	return m
}
