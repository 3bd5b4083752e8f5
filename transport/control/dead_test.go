package control

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"ncclmesh/handshake"
)

const childEnv = "NCCLMESH_TEST_CONTROL_CHILD"

func TestMain(m *testing.M) {
	if handle := os.Getenv(childEnv); handle != "" {
		if err := child(handle); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if where := os.Getenv(cableEnv); where != "" {
		if err := onCable(where); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is a peer in a process of its own: it dials the handle, prints one of its own, and waits for its end.
func child(handle string) error {
	var b [handshake.HandleSize]byte
	if _, err := hex.Decode(b[:], []byte(handle)); err != nil {
		return err
	}
	h, err := handshake.DecodeHandle(&b)
	if err != nil {
		return err
	}
	e, err := New(Config{Process: handshake.NewProcessID(nil), Hostname: "child", Addrs: []netip.Addr{loopback}, TimeScale: 20})
	if err != nil {
		return err
	}
	s, err := e.Dial(context.Background(), h)
	if err != nil {
		return err
	}
	if err := s.Send(&handshake.Connected{Conn: 1}); err != nil {
		return err
	}
	l, err := e.Listen()
	if err != nil {
		return err
	}
	b = l.Handle()
	fmt.Println(hex.EncodeToString(b[:]))
	_, _ = bufio.NewReader(os.Stdin).ReadByte() // for ever
	return e.Close()
}

// spawnChild starts a peer with which n has a session in each direction.
func spawnChild(t *testing.T, n *node) (cmd *exec.Cmd, dialled, accepted *Session, stop func()) {
	t.Helper()
	l, err := n.Listen()
	if err != nil {
		t.Fatal(err)
	}
	handle := l.Handle()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+hex.EncodeToString(handle[:]))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() { _ = in.Close() }
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var b [handshake.HandleSize]byte
	if _, err := hex.Decode(b[:], []byte(strings.TrimSpace(line))); err != nil {
		t.Fatalf("the child says %q", line)
	}
	h, err := handshake.DecodeHandle(&b)
	if err != nil {
		t.Fatal(err)
	}
	s := n.dial(h)
	n.send(s, &handshake.Connected{})
	eventually(t, "the child to have the session", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.acked == s.sent
	})
	return cmd, s, n.first(), stop
}

// TestKilledPeer: both directions notice, since the peer's address is known and now refuses.
func TestKilledPeer(t *testing.T) {
	leakCheck(t)
	n := newNode(t, nil)
	cmd, dialled, accepted, _ := spawnChild(t, n)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for _, s := range []*Session{dialled, accepted} {
		err := n.died(s)
		var peer *PeerError
		if !errors.As(err, &peer) || !peer.Dead || peer.Peer != "child" || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Dead (dialled: %v): %v, want a PeerError of a dead peer", s.Dialled(), err)
		}
		t.Logf("dialled %v: dead after %v: %v", s.Dialled(), time.Since(start), err)
		if s.Alive() {
			t.Error("the session is alive")
		}
	}
	if got := n.Stats(); got.Dead != 2 || got.Sessions != 0 {
		t.Errorf("stats: %+v", got)
	}
}

// TestStoppedPeer: a process that does not run for a while, as while it loads a model, is not dead.
func TestStoppedPeer(t *testing.T) {
	leakCheck(t)
	n := newNode(t, func(c *Config) { c.TimeScale = 0.1 })
	cmd, dialled, accepted, stop := spawnChild(t, n)
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, m := range conns(1, 100) {
		n.send(dialled, m)
		n.send(accepted, m)
	}
	time.Sleep(n.scaled(silenceWait + answerWait)) // longer than its kernel may stay silent
	if !dialled.Alive() || !accepted.Alive() {
		t.Fatal("a stopped peer was given up")
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := errors.Join(n.died(dialled), n.died(accepted)); err != nil {
		t.Errorf("Dead: %v", err)
	}
}
