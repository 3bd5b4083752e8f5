package tuner

// Costs are what the model is made of. Times are in µs, sizes in bytes, rates in
// bytes a µs (MB/s).
type Costs struct {
	Base     float64            // of any operation: launch, first and last word
	Hop      float64            // a message over one cable
	Relay    float64            // a node that passes it on
	Step     [NumProtos]float64 // what NCCL's kernel and proxy add to the hops of a step
	Message  float64            // one posted and one taken, by the one thread of a communicator
	Lane     float64            // rate of one function of a cage
	Lanes    int                // functions of a cage
	Channel  float64            // rate of one channel's kernel
	TreeRate float64            // share of the rate that a tree reaches with Simple
	PATRate  float64            // and PAT
	PATRank  float64            // what PAT takes for each rank
}

// Spark are the costs of GB10 machines, as of 22 November 2026. Nothing was measured
// on a GPU: what only a GPU can tell is fitted to figures that others have
// published. How the parts add up is measured: make bench, figures tuner-*, has the
// plugin do the patterns over modelled cables and keeps what that takes in
// docs/tuner.txt, and a test holds the model against it.
//
//	Base      a fit of published latencies: 2 nodes 30 µs at 8 KiB, a ring of 4 with LL 42.7 and Simple 58.3 at 4 KiB
//	Hop       published: ib_write_lat between two machines, 1.47
//	Relay     a guess: a relay's processor sees each frame once, as the receiver does; no relay has been measured
//	Step      with Hop, the same fit: 3.1 a step of LL, 5.4 of Simple; LL128 lies between
//	Message   a fit: 512 KiB on 3 nodes take 1,195 µs with 64 channels. Measured, figure cpu-8B beyond its C loop: 4.2 on a virtual machine
//	Lane      published: ib_write_bw over one function, 111.7 Gb/s
//	Channel   a fit of published bus bandwidths at 64 MiB: 16.7 GB/s with 8 channels, 20.6 with 16
//	TreeRate  published: NCCL_ALGO=Tree is 4 to 6 times slower on 3 nodes
//	PATRate, PATRank  NCCL's own model
var Spark = Costs{
	Base:     24,
	Hop:      1.5,
	Relay:    3,
	Step:     [NumProtos]float64{LL: 1.6, LL128: 2.5, Simple: 3.9},
	Message:  2.4,
	Lane:     13960,
	Lanes:    2,
	Channel:  5500,
	TreeRate: 0.22,
	PATRate:  0.75,
	PATRank:  2.8,
}

// What a protocol makes of the bytes, and how much of them is one message.
var protocols = [NumProtos]struct {
	wire    float64 // bytes carried for a byte of data
	rate    float64 // of the channel's, that its kernel reaches
	message float64 // bytes of data in a message, at most
	slices  float64 // messages of a chunk, at least
}{
	LL:     {wire: 2, rate: 0.5, message: 32 << 10, slices: 1},
	LL128:  {wire: 128.0 / 120, rate: 0.9, message: 480 << 10, slices: 1},
	Simple: {wire: 1, rate: 1, message: 1 << 20, slices: 2},
}

// Chunk is what NCCL cuts the bytes of a channel into where one chunk follows
// another from step to step, with its default buffer of 4 MiB.
const Chunk = 512 << 10

const (
	// MaxChannels: twice as many as the published figures have, where more helped,
	// take processors from whatever the GPU computes meanwhile.
	MaxChannels = 16

	// worth: a channel more takes a processor of the GPU, so that twice as many
	// have to be faster by this.
	worth = 1.05
)
