package e2e

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ncclmesh/tests/require"
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

// times waits until a rank has said so often something that matches.
func (j *job) times(n int, node, pattern string) {
	j.f.t.Helper()
	r := j.rank(node)
	for deadline := time.Now().Add(patience); r.count(pattern) < n; time.Sleep(2 * time.Millisecond) {
		select {
		case <-r.over:
			if r.count(pattern) < n {
				j.fatalf("node %s ended and said %q %d times, want %d", node, pattern, r.count(pattern), n)
			}
		default:
		}
		if time.Now().After(deadline) {
			j.fatalf("node %s said %q %d times in %v, want %d", node, pattern, r.count(pattern), patience, n)
		}
	}
}

// relaying is the environment of ranks that relay over one kind of lanes, and the cabling for it.
func relaying(kind string, c cabling) (cabling, []string) {
	if kind == "tcp" {
		return c.without(), []string{"NCCL_MESH_TRANSPORT=tcp", "NCCL_MESH_TCP_STREAMS=1"}
	}
	return c, nil
}

// A cable of a triangle is pulled while the job runs: its traffic goes through the third node, and comes back when the cable does.
func TestDetour(t *testing.T) {
	require.Full(t, "tests/sim/mesh TestRDMACablesFail and tests/sim/mesh TestCablesFail")
	tests := []struct {
		api, work string
		conns     int // from a to b
	}{
		{"v12", "--work soak --max 1M --comms 2", 2},
		{"v8", "--work allreduce --min 1M --max 4M --chunk 256K", 1},
		{"v5", "--work alltoall --min 8 --max 2M --factor 8 --channels 2", 2},
	}
	for _, tt := range tests {
		for _, kind := range relayKinds {
			t.Run(fmt.Sprintf("%s/%s over %s", tt.work, tt.api, kind), func(t *testing.T) {
				t.Parallel()
				cables, env := relaying(kind, single)
				f := newFabric(t, cables.topology())
				j := f.start(spec{env: env, args: append(f.endless(tt.work), "--api", tt.api)})
				j.moves()
				for n := 1; n <= 2; n++ {
					j.suffer("unplug a:" + cables.end("a", "ab0"))
					j.times(n*tt.conns, "a", `a -> b conn \d+: lane \d .* through c (has joined|takes the place of|has come back)`)
					j.suffer("moves", "moves", "plug a:"+cables.end("a", "ab0"))
					j.times(n*tt.conns, "a", `a -> b conn \d+: lane \d .* through c is no longer needed: a better path between the two nodes works again`)
					j.times(n*tt.conns, "a", `a -> b conn \d+: lane \d [^,]*ab0[^,]* (has joined|has come back|takes the place of)`)
					j.suffer("moves", "moves")
				}
				j.enough().ok()
			})
		}
	}
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

// signal sends a signal to the rank on a node.
func (j *job) signal(node string, s syscall.Signal) {
	j.f.t.Helper()
	if err := j.rank(node).cmd.Process.Signal(s); err != nil {
		j.fatalf("%v", err)
	}
}

// Two nodes of a ring talk through processes of other jobs on the other two, and what happens to these.
func TestRelayLost(t *testing.T) {
	require.Full(t, "tests/sim/mesh TestProcessDies and tests/e2e TestDedicatedRelayKilled")
	tests := []struct {
		name string
		do   func(j, b, d *job)
		ok   bool
	}{
		{"nothing", func(j, b, d *job) {}, true},
		{"stopped for a while", func(j, b, d *job) {
			b.signal("b", syscall.SIGSTOP)
			time.Sleep(700 * time.Millisecond)
			b.signal("b", syscall.SIGCONT)
		}, true},
		{"frozen", func(j, b, d *job) {
			b.signal("b", syscall.SIGSTOP)
			j.times(2, "a", `a -> c conn \d+: lane \d .* through b: b has given no sign of life for .*; its traffic goes over the 1 lane left`)
			j.suffer("moves", "moves")
			b.signal("b", syscall.SIGCONT)
			j.times(2, "a", `a -> c conn \d+: lane \d .* through b has come back`)
		}, true},
		{"killed", func(j, b, d *job) {
			b.signal("b", syscall.SIGKILL)
			const left = `lane \d .* through b: .*; its traffic goes over the 1 lane left`
			j.times(4, "a", left) // of two connections each way
			if n := j.rank("a").count(`NCCL WARN .* ` + left); n == 0 || n == 4 {
				j.errorf("one way was lost, and %d of 4 lanes warn of it", n)
			}
		}, true},
		{"a cable pulled", func(j, b, d *job) {
			j.suffer("unplug c:" + "cd0")
			j.times(2, "a", `a -> c conn \d+: lane \d .* through d: .*; its traffic goes over the 1 lane left`)
			j.suffer("moves", "plug c:"+"cd0")
			j.times(2, "a", `a -> c conn \d+: lane \d .* through d (has come back|takes the place of|has joined)`)
		}, true},
		{"both killed", func(j, b, d *job) {
			b.signal("b", syscall.SIGKILL)
			d.signal("d", syscall.SIGKILL)
		}, false},
		{"one killed, one leaves", func(j, b, d *job) {
			d.enough().ok()
			b.signal("b", syscall.SIGKILL)
		}, false},
	}
	for _, tt := range tests {
		for _, kind := range relayKinds {
			t.Run(tt.name+" over "+kind, func(t *testing.T) {
				t.Parallel()
				cables, env := relaying(kind, ring4)
				env = append(env, cables.alone(), "NCCL_MESH_TIME_SCALE=4", "NCCL_MESH_LANE_WAIT=0.5") // slow neighbours are waited for
				f := newFabric(t, cables.topology())
				relays := f.idle(env, "b", "d")
				j := f.start(spec{nodes: []string{"a", "c"}, env: env, args: f.endless("--work soak --max 1M --comms 2")})
				j.moves()
				if got := j.relays("a -> c"); got != "b d" {
					j.errorf("a -> c goes through %q", got)
				}
				tt.do(j, relays[0], relays[1])
				if tt.ok {
					j.suffer("moves", "moves")
					j.enough().ok()
					return
				}
				j.failed()
				j.one(`no path to (a|c) within .* \(NCCL_MESH_LANE_WAIT\): .* through (b|d): .* through (d|b): `)
			})
		}
	}
}

// A process whose work is over relays as long as it lives, and finalize does not wait for that.
func TestRelayFinalized(t *testing.T) {
	for _, kind := range relayKinds {
		t.Run(kind, func(t *testing.T) {
			if kind != "rdma" {
				require.Full(t, "the same test over RDMA")
			}
			t.Parallel()
			cables, env := relaying(kind, line3)
			env = append(env, cables.alone(), "NCCL_MESH_LANE_WAIT=2")
			f := newFabric(t, cables.topology())
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
		})
	}
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

// Cables of a ring go and come at random every 50 ms, while one is out at most, or whichever: every message arrives as it was sent.
func TestRelayFlaps(t *testing.T) {
	require.Full(t, "tests/sim/mesh TestRDMACablesFail and tests/sim/mesh TestCablesFail")
	const rounds = 400
	tests := []struct {
		name   string
		cables cabling
		most   int // cables that are out
	}{
		{"ring of 4", ring4, 1},
		{"triangle", single, 2},
	}
	for _, tt := range tests {
		for _, kind := range relayKinds {
			seed := rand.Uint64()
			t.Run(fmt.Sprintf("%s over %s, seed %d", tt.name, kind, seed), func(t *testing.T) {
				t.Parallel()
				cables, env := relaying(kind, tt.cables)
				f := newFabric(t, cables.topology())
				j := f.start(spec{env: append(env, cables.alone(), "NCCL_MESH_LANE_WAIT=30"), args: f.endless("--work soak --max 256K --timeout 120")})
				j.moves()
				j.flapRing(rand.New(rand.NewPCG(seed, 0)), cables, tt.most, rounds)
				j.suffer("moves", "moves")
				j.enough().ok()
				j.one(lostLine.String())
			})
		}
	}
}

// flapRing pulls cables and plugs them in again, one of the two every 50 ms, and leaves all in.
func (j *job) flapRing(rnd *rand.Rand, c cabling, most, rounds int) {
	j.f.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	pairs := strings.Fields(c.pairs)
	end := func(i int) string { return pairs[i][:1] + ":" + c.end(pairs[i][:1], pairs[i]+"0") }
	var out []int
	for n := range rounds {
		<-tick.C
		switch i := rnd.IntN(len(pairs)); {
		case len(out) > 0 && (len(out) == most || slices.Contains(out, i) || n == rounds-1):
			j.suffer("plug " + end(out[0]))
			out = out[1:]
		default:
			j.suffer("unplug " + end(i))
			out = append(out, i)
		}
	}
	for _, i := range out {
		j.suffer("plug " + end(i))
	}
}

// A job begins while a cable of its ring is out, and takes the longer way round.
func TestRelayWithoutACable(t *testing.T) {
	require.Full(t, "tests/sim/mesh TestCablesFail")
	for _, kind := range relayKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cables, env := relaying(kind, ring4)
			f := newFabric(t, cables.topology())
			f.fault("unplug", "a:"+cables.end("a", "ab0"))
			j := f.start(spec{env: append(env, cables.alone()), args: f.endless("--work soak --max 64K")})
			j.moves()
			if got := j.relays("a -> b"); got != "d,c" {
				j.errorf("a -> b goes through %q", got)
			}
			if got := j.relays("a -> c"); got != "d" {
				j.errorf("a -> c goes through %q", got)
			}
			j.enough().ok()
		})
	}
}
