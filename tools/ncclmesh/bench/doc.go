// Package bench measures what a mesh carries, over the transport that the plugin uses, on the
// nodes themselves.
//
// Agents ([Serve]) do what they are told, in orders of one line: try the ways to a peer, wait
// for connections, run flows over them, run a collective. What is to be measured and what it
// means is decided by who asks: [Links] goes from cable to cable, [Collectives] through sizes.
// The bytes that arrive are counted, and what lies in the buffers at the end of a measurement
// is checked against what was sent: a figure with wrong bytes is no figure.
//
// [NCCL] measures collectives of NCCL on the GPUs instead: its agents ([ServeNCCL]) load NCCL and the CUDA driver of their host,
// and NCCL chooses the network.
//
// Rates are of payload, in Gb/s of 10^9 bits for cables and GB/s of 10^9 bytes for
// collectives, as nccl-tests has them. What a port allows is the smaller of what headers leave
// of its link and of its PCIe slot (topology.Aggregate).
package bench
