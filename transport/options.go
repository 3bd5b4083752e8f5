package transport

import (
	"log/slog"
	"math"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/tcp"
	"ncclmesh/transport/lane/verbs"
	"ncclmesh/transport/sock"
	"ncclmesh/transport/threads"
	"ncclmesh/transport/topology"
)

// Options configures a Transport. The comment of a field ends with the default that its zero value means.
type Options struct {
	Machine Machine // the environment; the machine that the process runs on

	Sysfs     string   // root of sysfs; "/sys"
	Libraries []string // file names of libibverbs; the loader's default names

	HCA          topology.HCAFilter // RDMA ports in use; all
	Interfaces   topology.IfFilter  // interfaces of the control plane; all
	LaneIfs      topology.IfFilter  // interfaces of TCP lanes; all, those named in Interfaces only when there are no others
	SocketFamily int                // 4 or 6; 0 is both
	PortRange    sock.PortRange     // TCP ports to listen on and to dial from, UDP ports to query neighbours from; any
	GIDs         topology.GIDPolicy // which GID of a RoCE port is used; topology.AnyGID

	TrafficClass    int // RoCE traffic class; below 0 is 0
	ServiceLevel    int // service level; below 0 is 0
	PKeyIndex       int // partition key index
	Timeout         int // IB ack timeout, 4.096 µs · 2^n; below 0 is 14, more when deadlines are scaled
	RetryCount      int // transport retries; below 0 is 7
	RNRRetry        int // receiver-not-ready retries; below 0 is 7. 0 makes any such event an error
	QPsPerPath      int // queue pairs per path; 1
	RelaxedOrdering int // 0 off, 1 on, 2 as the device allows

	NoECE        bool // the adapters of both ends of a queue pair do not agree on options beyond the standard
	NoDataDirect bool // adapters reach GPU memory by their usual PCIe functions, also where they have others for that

	Transport  string // TransportAuto, TransportRDMA or TransportTCP; TransportAuto
	TCPStreams int    // TCP connections per path; by its speed
	TCPCheck   string // tcp.CheckAuto, tcp.CheckOff or tcp.CheckOn; the first

	Relay       string        // RelayAuto, RelayOff or RelayOnly; the first
	Key         string        // shared by all nodes that relay for each other; none
	RouteWait   time.Duration // how long to wait for a route through relays; 60 s
	RelayMemory int           // MiB that relayed circuits may use; 256
	Dedicated   bool          // the process only relays: Close ends the circuits it relays
	Observes    bool          // the process only examines the mesh: it answers neighbour discovery, and relays nothing

	LaneWait  time.Duration // how long a silent peer is tolerated; 10 s
	ProofWait time.Duration // how long further lanes may take to be validated after the first; 1 s
	TimeScale float64       // multiplies every deadline (emulation); 1

	StripeThreshold int // bytes; a shorter message uses one lane; over TCP the threshold is at least 512 KiB for each lane; 64 KiB

	Status string // where other processes can read the counters: a path, or StatusOff; an abstract name of this process

	Settings []handshake.Setting // sent to peers; some must be equal there; none

	HostID string // replaces boot id and network namespace as the node's identity

	// GPU memory, as CUDA knows it. GPUBuffer returns a number for the allocation that an address lies in, which no
	// later allocation has. FlushGPU makes all data in GPU memory visible, where no device can. Nil: not known, and not
	// possible. They are called from any goroutine, from when GPU memory is registered.
	GPUBuffer func(addr uintptr) (number uint64, known bool)
	FlushGPU  func() error

	Log *slog.Logger // discards
}

// StatusOff is the value of Options.Status that hides the counters from other processes.
const StatusOff = "0"

// Values of Options.Relay.
const (
	RelayAuto = "auto" // use routes through relays to nodes without a common cable, and relay for others
	RelayOff  = "0"
	RelayOnly = "only" // use routes through relays only
)

// Defaults of the options with the same names.
const (
	defaultTimeout         = 14
	defaultRetryCount      = 7
	defaultRNRRetry        = 7
	defaultStripeThreshold = 64 << 10
	defaultLaneWait        = 10 * time.Second
	defaultProofWait       = time.Second
	defaultRouteWait       = time.Minute
	defaultRelayMemory     = 256

	maxTimeout = 31 // the attribute has five bits
)

// withDefaults returns o with every zero value replaced by its default.
func (o Options) withDefaults() Options {
	if o.Sysfs == "" {
		o.Sysfs = "/sys"
	}
	if o.Machine.Source == nil {
		o.Machine.Source = kernel{o.Sysfs}
	}
	if o.GIDs == (topology.GIDPolicy{}) {
		o.GIDs = topology.AnyGID
	}
	if o.TimeScale <= 0 {
		o.TimeScale = 1
	}
	o.Machine.Clock = o.Machine.Clock.WithScale(o.TimeScale)
	if o.Timeout < 0 {
		o.Timeout = o.ownTimeout()
	}
	if o.RetryCount < 0 {
		o.RetryCount = defaultRetryCount
	}
	if o.RNRRetry < 0 {
		o.RNRRetry = defaultRNRRetry
	}
	o.TrafficClass = max(o.TrafficClass, 0)
	o.ServiceLevel = max(o.ServiceLevel, 0)
	if o.QPsPerPath <= 0 {
		o.QPsPerPath = 1
	}
	if o.Transport == "" {
		o.Transport = TransportAuto
	}
	if o.TCPCheck == "" {
		o.TCPCheck = tcp.CheckAuto
	}
	o.TCPStreams = min(max(o.TCPStreams, 0), lane.MaxParts)
	if o.Relay == "" {
		o.Relay = RelayAuto
	}
	if o.RouteWait <= 0 {
		o.RouteWait = defaultRouteWait
	}
	if o.RelayMemory <= 0 {
		o.RelayMemory = defaultRelayMemory
	}
	if o.LaneWait <= 0 {
		o.LaneWait = defaultLaneWait
	}
	if o.ProofWait <= 0 {
		o.ProofWait = defaultProofWait
	}
	if o.StripeThreshold <= 0 {
		o.StripeThreshold = defaultStripeThreshold
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// ownTimeout returns the default ack timeout. It grows with TimeScale, because a slow host acknowledges late.
func (o *Options) ownTimeout() int {
	return min(defaultTimeout+int(math.Ceil(math.Log2(max(1, o.TimeScale)))), maxTimeout)
}

// verbs returns the options of queue pairs. A probe's queue pair has at most the default timeout, so that the probe
// fails in time even if the user has set a longer one.
func (o *Options) verbs(resolving *threads.Pool) verbs.Options {
	v := verbs.Options{
		TrafficClass: o.TrafficClass, ServiceLevel: o.ServiceLevel, PKeyIndex: o.PKeyIndex,
		Timeout: o.Timeout, ProbeTimeout: o.Timeout, RetryCount: o.RetryCount, RNRRetry: o.RNRRetry,
		RelaxedOrdering: o.RelaxedOrdering != 0, NoECE: o.NoECE, NoDataDirect: o.NoDataDirect, Sysfs: o.Sysfs, Resolving: resolving, Random: o.Machine.Random, Log: o.Log,
		GIDs: o.GIDs, GPUBuffer: o.GPUBuffer,
	}
	if own := o.ownTimeout(); o.Timeout == 0 || o.Timeout > own {
		v.ProbeTimeout = own
	}
	return v
}
