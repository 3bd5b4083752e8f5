package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ncclmesh/tests/require"
)

// soaking is a soak of two communicators.
const soaking = "--work soak --max 1M --comms 2"

// over is a mesh and what makes several lanes of each of its connections.
type over struct {
	cabling
	env []string
}

// String is in the names of tests.
func (o over) String() string {
	return strings.Join(append([]string{o.cabling.String()}, o.env...), ", ")
}

var qps2 = []string{"NCCL_IB_QPS_PER_CONNECTION=2"}

// A failure in a running job that leaves each connection a lane ends nothing: every message arrives as it was sent, and both ends of each lane
// that is lost say so once.
func TestFailover(t *testing.T) {
	quads, pairs, triangles, streams := over{cabling: four}, over{two, qps2}, over{cabling: doubled}, over{single, qps2}
	tests := []struct {
		name   string
		over   over
		api    string
		faults []string
		lose   string // the lanes, of every connection between nodes,
		lost   int    // or how many of any
		sample bool
	}{
		{"unplugged", pairs, "v8", []string{"unplug a:rab1"}, `rab1`, 0, true},
		{"a cable of each two unplugged", triangles, "v12", []string{"unplug a:rab0", "unplug b:rbc1", "moves", "unplug c:rca0"}, `rab0|rbc1|rca0`, 0, false},
		{"port off", triangles, "v8", []string{"down c:rbc1"}, `rbc1`, 0, false},
		{"stalled", quads, "v12", []string{"stall port=a:rab0"}, `rab0`, 0, false},
		{"stalled, and unplugged", quads, "v8", []string{"stall port=a:rab0", "unplug b:rab0"}, `rab0`, 0, false},
		{"acknowledgements lost, and unplugged", quads, "v12", []string{"ack port=a:rab1 times=50", "unplug b:rab1"}, `rab1`, 0, false},
		{"completions late, and all but one unplugged", pairs, "v12", []string{"slow time=1ms", "unplug a:rab0"}, `rab0`, 0, false},
		{"device fatal", pairs, "v12", []string{"event DEVICE_FATAL b:rab1"}, `rab1`, 0, false},
		{"port error", triangles, "v5", []string{"event PORT_ERR a:rca1"}, `rca1`, 0, false},
		{"retries", streams, "v12", []string{"wr status=RETRY_EXC_ERR times=1 node=c skip=50"}, ``, 1, false},
		{"the peer fails", quads, "v5", []string{"wr status=REM_OP_ERR times=1 node=a skip=20"}, ``, 1, false},
		{"a queue pair fails", streams, "v5", []string{"qp-error a rab0"}, ``, 1, false},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s/%s over %v", tt.name, tt.api, tt.over), func(t *testing.T) {
			if !tt.sample {
				require.Full(t, "tests/sim/mesh TestRDMACablesFail")
			}
			t.Parallel()
			j := outlives(t, tt.over, tt.faults, soaking+" --api "+tt.api)
			if tt.lose != "" {
				j.lose(tt.lose)
			} else if n := j.lost(); n != tt.lost {
				j.errorf("%d lanes were lost, want %d", n, tt.lost)
			}
		})
	}
}

// outlives runs a job that suffers faults once it moves data, goes on for two rounds that are all behind the last of them, and ends with
// nothing wrong.
func outlives(t *testing.T, o over, faults []string, work string, env ...string) *job {
	t.Helper()
	f := newFabric(t, o.topology())
	j := f.start(spec{env: slices.Concat(o.env, env), args: f.endless(work)})
	j.moves()
	j.suffer(faults...)
	j.suffer("moves", "moves", "moves") // the first may have begun before
	return j.enough().ok()
}

// The same over sockets, and on a mesh of both.
func TestFailoverTCP(t *testing.T) {
	quads, streams, both := over{cabling: fourTCP}, over{cabling{pairs: "ab", each: 2, plain: "ab"}, []string{"NCCL_MESH_TCP_STREAMS=2", "NCCL_MESH_TCP_CHECK=1"}}, over{cabling: twoMixed}
	const nobody = "lladdr 02:00:00:00:00:99 nud permanent" // what is sent is for nobody
	tests := []struct {
		name   string
		over   over
		api    string
		faults []string
		lose   string
		sample bool
	}{
		{"one end off", streams, "v5", []string{"ip b link set ab1 down"}, `ab1`, true},
		{"nothing arrives", streams, "v12", []string{"ip a neigh replace 192.168.1.2 dev ab0 " + nobody, "ip b neigh replace 192.168.1.1 dev ab0 " + nobody}, `ab0`, false},
		{"an address is taken away", quads, "v8", []string{"ip b addr del 192.168.1.2/24 dev ab0"}, `ab0`, false},
		{"a cable of each two", both, "v8", []string{"unplug b:rab1", "unplug c:bc0", "moves", "unplug c:ca0"}, `ab1|bc0|ca0`, false},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s/%s over %v", tt.name, tt.api, tt.over), func(t *testing.T) {
			if !tt.sample {
				require.Full(t, "tests/sim/mesh TestCablesFail")
			}
			t.Parallel()
			outlives(t, tt.over, tt.faults, soaking+" --api "+tt.api, auto, "NCCL_MESH_LANE_WAIT=3").lose(tt.lose)
		})
	}
}

// A port that is down when the processes begin is used once it comes up: by the connections that there are, and one for queue pairs, where
// those are over sockets, by the next ones.
func TestPortComesUp(t *testing.T) {
	tcp := []string{"NCCL_MESH_TRANSPORT=tcp"}
	tests := []struct {
		name         string
		over         over
		work         string
		before       []string // when nothing runs yet
		off          []string // interfaces of a that have no carrier then
		waits, began string   // what a says of the port, and of the lanes of a connection
		then         []string
		joined       string // what a says then
	}{
		{"a cable of four", over{cabling: four}, "", []string{"unplug a:rab1"}, []string{"ab1"}, `rab1:1 \(ab1\)`, `lane 0 [^,]*(, [^,]*){2}$`,
			[]string{"plug a:rab1"}, `lane \d rab1:1 -> rab1:1 has joined`},
		{"no port of RDMA is up", over{two, []string{auto}}, "--reopen 5", []string{"down a:rab0", "down a:rab1"}, []string{"ab0", "ab1"}, `rab0:1 \(ab0\), rab1:1 \(ab1\)`, `lane 0 mgmt0`,
			[]string{"up a:rab1"}, `lane 0 rab1:1 -> rab1:1`},
		{"a cable of four for TCP", over{fourTCP, tcp}, "", []string{"unplug b:ab1"}, []string{"ab1"}, `ab1`, `lane 0 [^,]*(, [^,]*){2}$`,
			[]string{"plug b:ab1"}, `lane \d ab1 -> ab1 has joined`},
		{"an address is given later", over{fourTCP, tcp}, "", []string{"ip a addr flush dev ab2"}, nil, `ab2`, `lane 0 [^,]*(, [^,]*){2}$`,
			[]string{"ip a addr add 192.168.3.1/24 dev ab2"}, `lane \d ab2 -> ab2 has joined`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "a cable of four" {
				require.Full(t, "tests/e2e TestPortComesUp over a cable of four and tests/sim/mesh TestCablesFail")
			}
			t.Parallel()
			f := newFabric(t, tt.over.topology())
			f.suffer(tt.before...)
			f.off("a", tt.off...)
			j := f.start(spec{env: tt.over.env, args: append(f.endless("--work soak --max 64K"), strings.Fields(tt.work)...)})
			j.await("a", `used as well once they are up and have an address: .*`+tt.waits)
			j.await("a", `a -> b conn \d+: `+tt.began)
			j.suffer(append([]string{"moves"}, tt.then...)...)
			j.await("a", `a -> b conn \d+: `+tt.joined)
			j.enough().ok()
		})
	}
}
