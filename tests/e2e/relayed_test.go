package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/require"
)

// somebody waits until a rank has said something that matches.
func (j *job) somebody(pattern string) {
	j.f.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		for _, r := range j.ranks {
			if r.count(pattern) > 0 {
				return
			}
			select {
			case <-r.over:
				j.fatalf("node %s ended before %q was said", r.node, pattern)
			default:
			}
		}
		if time.Now().After(deadline) {
			j.fatalf("nobody said %q in %v", pattern, patience)
		}
	}
}

// relayFault is something that happens to a ring of four in which a and c talk through b and d.
type relayFault struct {
	name   string
	api    string
	faults []string
}

// wr is a work request that fails, at the n-th occasion.
func wr(port, status string, n int) relayFault {
	return relayFault{
		fmt.Sprintf("%s at %s, %d", status, port, n), []string{"v5", "v8", "v12"}[n%3],
		[]string{fmt.Sprintf("wr status=%s times=1 port=%s skip=%d", status, port, n)},
	}
}

// relayFaults are for circuits of queue pairs: of the sender, which writes frames, of the relay, which writes heads on and credits back,
// and of the receiver, which reads frames, grants and credits, at any stage of a message.
func relayFaults() (all []relayFault) {
	all = []relayFault{
		{"frame fails", "v12", []string{"wr status=RETRY_EXC_ERR times=1 port=a:rab0 skip=40"}},
		{"frame fails at the relay", "v8", []string{"wr status=RETRY_EXC_ERR times=1 port=b:rbc0 skip=33"}},
		{"read or grant fails", "v5", []string{"wr status=REM_OP_ERR times=1 port=c:rbc0 skip=27"}},
		{"acknowledgements lost, and unplugged", "v12", []string{"ack port=a:rab0 times=50", "unplug a:rab0", "lost", "moves", "plug a:rab0"}},
		{"acknowledgements lost at the relay, and unplugged", "v8", []string{"ack port=b:rbc0", "unplug b:rbc0", "lost", "moves", "clear", "plug b:rbc0"}},
		{"stalled behind the relay", "v5", []string{"stall port=b:rbc0", "lost", "moves", "clear"}},
		{"port of the relay's off", "v8", []string{"down b:rbc0", "lost", "moves", "up b:rbc0"}},
		{"device of the relay's fatal", "v5", []string{"event PORT_ERR b:rab0", "down b:rab0", "lost", "moves", "up b:rab0"}},
		{"the other way fails while the first is settled", "v12", []string{"unplug a:rab0", "wr status=RETRY_EXC_ERR times=2 port=a:rda0 skip=1", "plug a:rab0"}},
		{"both ways lost, and back", "v8", []string{"unplug b:rbc0", "unplug d:rda0", "lost", "plug b:rbc0", "plug d:rda0"}},
		{"completions late, and unplugged", "v5", []string{"slow time=2ms", "unplug c:rbc0", "lost", "moves", "clear", "plug c:rbc0"}},
	}
	for _, port := range []string{"a:rab0", "b:rab0", "b:rbc0", "c:rbc0"} {
		for _, n := range []int{0, 1, 2, 3, 5, 8, 13, 21, 55} {
			all = append(all, wr(port, []string{"RETRY_EXC_ERR", "WR_FLUSH_ERR"}[n%2], n))
		}
	}
	return all
}

// The same over sockets.
var relaySocketFaults = []relayFault{
	{"unplugged behind the relay", "v12", []string{"unplug b:bc0", "lost", "moves", "plug b:bc0"}},
	{"one end off at the relay", "v8", []string{"ip b link set ab0 down", "lost", "moves", "ip b link set ab0 up"}},
	{"nothing arrives behind the relay", "v5", []string{
		"ip b neigh replace 192.168.11.2 dev bc0 lladdr 02:00:00:00:00:99 nud permanent", "lost", "moves", "ip b neigh del 192.168.11.2 dev bc0",
	}},
	{"both ways lost, and back", "v12", []string{"unplug b:bc0", "unplug d:da0", "lost", "plug b:bc0", "plug d:da0"}},
}

// What goes wrong with lanes through other nodes, at any stage of a message: everything arrives as it was sent, and what was lost is back.
func TestRelayFaults(t *testing.T) {
	require.Full(t, "tests/sim/mesh TestRDMACablesFail and tests/sim/mesh TestCablesFail")
	for kind, faults := range map[string][]relayFault{"rdma": relayFaults(), "tcp": relaySocketFaults} {
		for _, tt := range faults {
			t.Run(fmt.Sprintf("%s/%s over %s", tt.name, tt.api, kind), func(t *testing.T) {
				t.Parallel()
				cables, env := relaying(kind, ring4)
				cables.link = single.link
				env = append(env, cables.alone(), "NCCL_MESH_TIME_SCALE=4", "NCCL_MESH_LANE_WAIT=2.5") // slow neighbours are waited for
				f := newFabric(t, cables.topology())
				relays := f.idle(env, "b", "d")
				j := f.start(spec{nodes: []string{"a", "c"}, env: env, args: append(f.endless("--work soak --max 1M --comms 2 --timeout 600"), "--api", tt.api)})
				j.moves()
				for _, pair := range []string{"a -> c", "c -> a"} { // else the fault may be where nothing goes
					if got := j.relays(pair); got != "b d" {
						j.fatalf("%s goes through %q, want both", pair, got)
					}
				}
				j.suffer(tt.faults...)
				j.somebody(lostLine.String())
				j.somebody(backLine.String())
				j.suffer("moves", "moves")
				j.enough().ok()
				for _, r := range relays {
					r.enough().ok()
				}
			})
		}
	}
}

// Pairs that talk through others do so beside the rings of those, which go over the same cables.
func TestRelayMixed(t *testing.T) {
	require.Full(t, "tests/sim/mesh TestRDMACablesFail, whose rings carry for others beside their own traffic")
	tests := []struct {
		cables      cabling
		beside, api string
	}{
		{ring4, "--work allreduce --min 1M --max 1M", "v12"},
		{ring5, "--work allgather --min 256K --max 256K", "v8"},
		{triangles, "--work soak --max 1M", "v5"},
	}
	for _, tt := range tests {
		for _, kind := range relayKinds {
			t.Run(fmt.Sprintf("%s beside %s over %s", tt.cables, tt.beside, kind), func(t *testing.T) {
				t.Parallel()
				cables, env := relaying(kind, tt.cables)
				env = append(env, "NCCL_MESH_PROOF_WAIT=20000")
				f := newFabric(t, cables.topology())
				beside := f.start(spec{env: env, args: f.endless(tt.beside)})
				beside.moves()
				f.start(spec{env: env, args: append(strings.Fields("--work alltoall,contract,soak --min 8 --max 1M --factor 64 --iters 2 --messages 40"), "--api", tt.api)}).ok()
				beside.moves()
				beside.unbroken() // before ranks end that carry for others
				beside.enough().ok()
			})
		}
	}
}
