package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// endless makes a job go on until enough is called, and tell of each round.
func (f *mesh) endless(args string) []string {
	return append(strings.Fields(args), "--until", f.end(f.jobs+1), "--progress", "1", "--reopen", "1000000000")
}

// end is the file that ends a job of the fabric.
func (f *mesh) end(job int) string { return filepath.Join(f.Dir, fmt.Sprintf("enough%d", job)) }

// enough ends a job that is endless.
func (j *job) enough() *job {
	j.f.t.Helper()
	if err := os.WriteFile(j.f.end(j.number), nil, 0o600); err != nil {
		j.fatalf("%v", err)
	}
	return j
}

// relaying is the environment of ranks that relay over one kind of lanes, and the cabling for it.
func relaying(kind string, c cabling) (cabling, []string) {
	if kind == "tcp" {
		return c.without(), []string{"NCCL_MESH_TRANSPORT=tcp", "NCCL_MESH_TCP_STREAMS=1"}
	}
	return c, nil
}

// idle starts a job of one rank on each of some nodes, which do nothing but relay.
func (f *mesh) idle(env []string, nodes ...string) (all []*job) {
	f.t.Helper()
	for _, node := range nodes {
		j := f.start(spec{nodes: []string{node}, env: env, args: f.endless("--work idle")})
		j.await(node, `idle$`)
		all = append(all, j)
	}
	return all
}

// A process whose work is over relays as long as it lives, and finalize does not wait for that.
func TestRelayFinalized(t *testing.T) {
	t.Parallel()
	env := []string{line3.alone(), "NCCL_MESH_LANE_WAIT=2"}
	f := newFabric(t, line3.topology())
	h := f.helper("b", "linger", "up\n", append(env, "NCCL_SOCKET_IFNAME=mgmt0", "NCCL_HOSTID=b")...)
	j := f.start(spec{nodes: []string{"a", "c"}, env: env, args: f.endless("--work soak --max 256K")})
	j.moves()
	if got := j.relays("a -> c"); got != "b" {
		j.errorf("a -> c goes through %q", got)
	}
	if _, err := fmt.Fprintln(h.in); err != nil {
		t.Fatal(err)
	}
	if line, err := h.out.ReadString('\n'); line != "finalized\n" {
		j.fatalf("linger: %q, %v, %s", line, err, &h.why)
	}
	j.suffer("moves", "moves", "moves")
	if n := j.lost(); n != 0 {
		j.errorf("%d lanes were lost", n)
	}
	j.enough().ok()
	h.end()
}

func init() { helpers["linger"] = linger }

// linger starts the plugin, ends it when it is told to, and lives on until its input ends.
func linger() error {
	n, ctx, _, err := left()
	if err != nil {
		return err
	}
	fmt.Println("up")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	if r := n.Finalize(ctx); r != 0 {
		return fmt.Errorf("finalize: %v", r)
	}
	fmt.Println("finalized")
	_, err = io.Copy(io.Discard, in)
	return err
}
