package tuner

// A Func is a collective operation (ncclFunc_t).
type Func int

// An Algo is an algorithm (NCCL_ALGO_*); those that need NVLink or a switch that
// computes have no place on a mesh and are not named.
type Algo int

// A Proto is a protocol (NCCL_PROTO_*).
type Proto int

const (
	Broadcast     Func = 0
	Reduce        Func = 1
	AllGather     Func = 2
	ReduceScatter Func = 3
	AllReduce     Func = 4

	Tree Algo = 0
	Ring Algo = 1
	PAT  Algo = 6 // since 2.23

	LL     Proto = 0
	LL128  Proto = 1
	Simple Proto = 2
)

// How many there are in a [Table].
const (
	NumFuncs  = 5
	NumProtos = 3
)

func (f Func) String() string {
	return [NumFuncs]string{"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"}[f]
}

func (a Algo) String() string { return map[Algo]string{Tree: "Tree", Ring: "Ring", PAT: "PAT"}[a] }

func (p Proto) String() string { return [NumProtos]string{"LL", "LL128", "Simple"}[p] }

// algos are those that NCCL has for f with one rank a node.
func (f Func) algos() []Algo {
	switch f {
	case AllReduce:
		return []Algo{Ring, Tree}
	case AllGather, ReduceScatter:
		return []Algo{Ring, PAT}
	}
	return []Algo{Ring}
}

// protos are those that NCCL has for a. LL128 relies on 16 bytes arriving whole
// and in order; where NCCL offers it nevertheless it is the last choice.
func (a Algo) protos() []Proto {
	if a == PAT {
		return []Proto{Simple}
	}
	return []Proto{LL, Simple, LL128}
}
