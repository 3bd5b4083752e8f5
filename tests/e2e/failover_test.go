package e2e

import (
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

var qps2 = []string{"NCCL_IB_QPS_PER_CONNECTION=2"}

// A failure in a running job that leaves each connection a lane ends nothing, over queue pairs, sockets, or both: every message arrives as it was
// sent, and both ends of each lane that is lost say so once.
func TestFailover(t *testing.T) {
	pairs, streams := over{two, qps2}, over{cabling{pairs: "ab", each: 2, plain: "ab"}, []string{auto, "NCCL_MESH_TCP_STREAMS=2", "NCCL_MESH_TCP_CHECK=1", "NCCL_MESH_LANE_WAIT=3"}}
	both := over{twoMixed, []string{auto, "NCCL_MESH_LANE_WAIT=3"}}
	tests := []struct {
		name   string
		over   over
		api    string
		faults []string
		lose   string // the lanes, of every connection between nodes
		sample bool
	}{
		{"unplugged", pairs, "v8", []string{"unplug a:rab1"}, `rab1`, true},
		{"device fatal", pairs, "v12", []string{"event DEVICE_FATAL b:rab1"}, `rab1`, false},
		{"one end off", streams, "v5", []string{"ip b link set ab1 down"}, `ab1`, true},
		{"a cable of each two", both, "v8", []string{"unplug b:rab1", "unplug c:bc0", "moves", "unplug c:ca0"}, `ab1|bc0|ca0`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if !tt.sample {
				require.Full(t, "tests/sim/mesh TestRDMACablesFail and tests/sim/mesh TestCablesFail")
			}
			t.Parallel()
			f := newFabric(t, tt.over.topology())
			f.outlives(spec{env: tt.over.env, args: f.endless(soaking + " --api " + tt.api)}, tt.faults).lose(tt.lose)
		})
	}
}

// outlives runs an endless job that suffers faults once it moves data, goes on for two rounds that are all behind the last of them, and ends
// with nothing wrong.
func (f *mesh) outlives(s spec, faults []string) *job {
	f.t.Helper()
	j := f.start(s)
	j.moves()
	j.suffer(faults...)
	j.suffer("moves", "moves", "moves") // the first may have begun before
	return j.enough().ok()
}

// A port that is down when the processes begin is used by their connections once it comes up.
func TestPortComesUp(t *testing.T) {
	t.Parallel()
	f := newFabric(t, four.topology())
	f.suffer("unplug a:rab1")
	f.off("a", "ab1")
	j := f.start(spec{args: f.endless("--work soak --max 64K")})
	j.await("a", `used as well once they are up and have an address: .*rab1:1 \(ab1\)`)
	j.await("a", `a -> b conn \d+: lane 0 [^,]*(, [^,]*){2}$`)
	j.suffer("moves", "plug a:rab1")
	j.await("a", `a -> b conn \d+: lane \d rab1:1 -> rab1:1 has joined`)
	j.enough().ok()
}
