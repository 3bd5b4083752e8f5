package e2e

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/require"
)

// While two ranks work, a third node sends to a's control port what no peer would. Every kind is counted and logged once, nothing of it
// stays in the process, and the job's data is right.
func TestHostileBytes(t *testing.T) {
	require.Full(t, "transport/control TestHostileBytes, tests/e2e TestStranger and tests/e2e TestFlooded")
	f := newFabric(t, triangle)
	recorder := f.command("b", os.Args[0])
	recorder.Env = append(recorder.Env, "E2E_HELPER=record")
	var why bytes.Buffer
	recorder.Stderr = &why
	stop, err := recorder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := recorder.StdoutPipe()
	if err == nil {
		err = recorder.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(out)
	if line, err := said.ReadString('\n'); line != "recording\n" {
		t.Fatalf("record: %q, %v, %s", line, err, &why)
	}
	j := f.start(spec{nodes: []string{"a", "b"}, args: []string{"--work", "soak", "--max", "16K", "--duration", "6", "--reopen", "1000000000"},
		on: map[string][]string{"a": {"NCCL_MESH_TIME_SCALE=0.1"}}}) // so that the slow ones are given up in a second
	j.await("a", `a -> b conn \d+: lane 0`)
	j.await("a", `b -> a conn \d+: lane 0`)
	err = stop.Close()
	heard, readErr := io.ReadAll(said)
	if err := errors.Join(err, readErr, recorder.Wait()); err != nil {
		j.fatalf("record: %v: %s", err, &why)
	}
	a := j.rank("a")
	before := held(t, a)

	attack := f.command("c", os.Args[0])
	attack.Env = append(attack.Env, "E2E_HELPER=attack")
	attack.Stdin = bytes.NewReader(heard)
	did, err := attack.CombinedOutput()
	if err != nil {
		j.fatalf("attack: %v: %s", err, did)
	}
	t.Logf("%s", did)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		after := held(t, a)
		if after.fds <= before.fds && after.threads <= before.threads+idleThreads {
			break
		}
		if time.Now().After(deadline) {
			j.fatalf("a held %+v before the attack and holds %+v after it", before, after)
		}
	}
	select {
	case <-a.over:
		j.fatalf("the job was over before the attack")
	default:
	}
	j.ok()
	for _, reason := range []string{"malformed message", "ended in the middle of a message", "wrong version", "closed listen id",
		"not authenticated in time", "too many unauthenticated connections from one address"} {
		line := `NCCL WARN NET/Mesh : control: refused a connection; .* from=10\.99\.0\.3:\d+ reason="` + reason + `"`
		if n := a.count(line); n != 1 {
			j.errorf("%q was logged %d times", reason, n)
		}
	}
	j.must("a", `control plane closed`)
}

// idleThreads is how many threads Go may have made for goroutines that ran at once, and keeps: no more than it runs at once.
const idleThreads = 32

type holdings struct{ fds, threads int }

func held(t *testing.T, r *rank) (h holdings) {
	t.Helper()
	for name, n := range map[string]*int{"fd": &h.fds, "task": &h.threads} {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", r.cmd.Process.Pid, name))
		if err != nil {
			t.Fatal(err)
		}
		*n = len(list)
	}
	return h
}

func init() { helpers["attack"] = attack }

// isHello matches a Hello in hexadecimal digits, of any version.
var isHello = regexp.MustCompile(`^4e4d..82`)

// attack reads a recorded conversation and what its listener's address is, and knocks there.
func attack() error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var at string
	var hello []byte
	for line := range strings.Lines(string(text)) {
		w := strings.Fields(line) // an address and what was said to it, which may be the driver's
		if len(w) == 2 && strings.HasPrefix(w[0], "10.99.0.1:") && isHello.MatchString(w[1]) {
			at = w[0]
			if hello, err = hex.DecodeString(w[1]); err != nil {
				return err
			}
		}
	}
	if len(hello) < 100 {
		return fmt.Errorf("no conversation with node a was recorded: %q", text)
	}
	version := bytes.Clone(hello)
	version[2] = 77
	changed := bytes.Clone(hello)
	changed[60] ^= 1
	noise := make([]byte, 70000)
	seed := rand.NewChaCha8([32]byte{1})
	_, _ = seed.Read(noise) // never fails
	kinds := []struct {
		name  string
		bytes []byte
	}{
		{"nothing", nil},
		{"random bytes", noise},
		{"few random bytes", noise[:3]},
		{"another protocol", []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")},
		{"part of a hello", hello[:50]},
		{"a huge length", append(bytes.Clone(hello[:4]), 0xff, 0xff, 0xff, 0xff)},
		{"two megabytes of zeros", make([]byte, 2<<20)},
		{"a hello repeated, and all that followed", hello},
		{"a hello with a bit changed", changed},
		{"another version", version},
	}
	for range 3 {
		for _, k := range kinds {
			c, err := net.Dial("tcp", at)
			if err != nil {
				return err
			}
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			_, _ = c.Write(k.bytes) // it may hang up before the end
			_ = c.(*net.TCPConn).CloseWrite()
			n, err := io.Copy(io.Discard, c)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("%s: not hung up on", k.name)
			}
			if n > 200 {
				return fmt.Errorf("%s: %d bytes in answer", k.name, n)
			}
			_ = c.Close()
		}
	}
	var slow []net.Conn // and many
	for range 100 {
		c, err := net.Dial("tcp", at)
		if err != nil {
			return err
		}
		slow = append(slow, c)
	}
	for _, b := range hello[:20] { // a byte now and then
		for _, c := range slow {
			_, _ = c.Write([]byte{b})
		}
		time.Sleep(70 * time.Millisecond)
	}
	for i, c := range slow {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("slow %d: not hung up on", i)
		}
		_ = c.Close()
	}
	fmt.Printf("%d kinds of bytes at %s, %d bytes recorded, %d slow connections\n", len(kinds), at, len(hello), len(slow))
	return nil
}
