package bench

import (
	"time"

	"ncclmesh/tools/ncclmesh/launch"
)

// Do and DoNCCL are the names of Serve and of ServeNCCL among an agent's handlers.
const (
	Do     = "bench"
	DoNCCL = "bench nccl"
)

// setup is what an agent is asked first.
type setup struct {
	WhileBusy bool `json:"whileBusy"` // also where a job runs
}

// ncclSetup is what an agent that runs NCCL is asked first.
type ncclSetup struct {
	WhileBusy bool           `json:"whileBusy"`
	GPUs      int            `json:"gpus,omitempty"` // 0: all
	File      string         `json:"file,omitempty"` // NCCL's library; "": it is looked for
	Setting   launch.Setting `json:"setting"`
}

// started is what it answers.
type started struct {
	Hostname string   `json:"hostname"`
	ID       string   `json:"id"`
	Handle   []byte   `json:"handle"`   // to survey this node by
	MemBytes int64    `json:"memBytes"` // that may be used for buffers
	Busy     []string `json:"busy,omitempty"`

	GPUs    []string `json:"gpus,omitempty"` // names, of an agent that runs NCCL
	NCCL    string   `json:"nccl,omitempty"`
	Network string   `json:"network,omitempty"`
	Against []string `json:"against,omitempty"` // the plugin
}

// order is one thing to do. One of its members is there.
type order struct {
	End    bool     `json:"end,omitempty"`
	Survey []byte   `json:"survey,omitempty"` // the handle of a peer, whose ways are to be tried
	Listen []string `json:"listen,omitempty"` // the flows that come here
	Run    *run     `json:"run,omitempty"`
	Join   *join    `json:"join,omitempty"`
	Play   *playing `json:"play,omitempty"`

	Allocate int         `json:"allocate,omitempty"` // bytes of each GPU's buffers
	Unique   bool        `json:"unique,omitempty"`   // make NCCL's unique id
	Meet     *meeting    `json:"meet,omitempty"`
	GPUPlay  *gpuPlaying `json:"gpuPlay,omitempty"`
}

// done answers an order.
type done struct {
	Handles map[string][]byte `json:"handles,omitempty"` // by flow
	Flows   map[string]flow   `json:"flows,omitempty"`   // that were sent or received here
	Played  *played           `json:"played,omitempty"`
	Usage   usage             `json:"usage"` // during a run

	Unique    []byte   `json:"unique,omitempty"`
	GPUPlayed []played `json:"gpuPlayed,omitempty"` // by GPU
	Error     string   `json:"error,omitempty"`
}

// Way is one that is proved, by its two ports' names.
type Way struct {
	Port     string `json:"port"`
	PeerPort string `json:"peerPort"`
	RDMA     bool   `json:"rdma"`
}

// run has flows go at once. A latency is measured between the first flow that is sent and the
// first that is received.
type run struct {
	Sends   []send        `json:"sends,omitempty"`
	Recvs   []string      `json:"recvs,omitempty"` // flows that this node has listened for
	Bytes   int           `json:"bytes"`           // of a message
	For     time.Duration `json:"for"`
	Latency bool          `json:"latency,omitempty"`
	First   bool          `json:"first,omitempty"` // of a latency: this side asks, the other answers
}

// send is a flow from this node.
type send struct {
	Flow   string `json:"flow"`
	Handle []byte `json:"handle"`
	Peer   string `json:"peer"`           // id, of which the ways were surveyed
	Ways   []Way  `json:"ways,omitempty"` // none: whatever the plugin would use
}

// flow is how one went.
type flow struct {
	Bytes   int64         `json:"bytes"` // in the time that counts
	Took    time.Duration `json:"took"`
	Wrong   int64         `json:"wrong"`   // bytes, of those that were looked at
	Allowed int           `json:"allowed"` // Mb/s that this side's ports allow
	Lanes   string        `json:"lanes"`   // that carried it
	Median  time.Duration `json:"median,omitempty"`
	P99     time.Duration `json:"p99,omitempty"`
}

// join has the node connect to all others.
type join struct {
	Rank    int      `json:"rank"`
	Handles [][]byte `json:"handles"` // by rank, of what each listens at for this one; none of its own
}

// playing has it take part in a collective.
type playing struct {
	Kind  string `json:"kind"`
	Bytes int    `json:"bytes"` // as nccl-tests counts them
	Warm  int    `json:"warm"`
	Times int    `json:"times"`
}

// played is how that went.
type played struct {
	Each  time.Duration `json:"each"`
	Wrong int64         `json:"wrong"` // elements
}

// meeting has a host's GPUs become ranks of a communicator.
type meeting struct {
	ID    []byte `json:"id"` // NCCL's unique one
	Ranks int    `json:"ranks"`
	First int    `json:"first"` // rank of the host's first GPU
}

// gpuPlaying has a host's GPUs take part in a collective of NCCL.
type gpuPlaying struct {
	Kind    string `json:"kind"`
	Bytes   int    `json:"bytes"`
	InPlace bool   `json:"inPlace"`
	Warm    int    `json:"warm"`
	Times   int    `json:"times"`
}
