// Package tuner says what a collective operation costs on a mesh of cables, and
// from that which algorithm, protocol and number of channels NCCL should use for
// each size.
//
// The cost of an operation, see [Model.Time], has five parts: what NCCL takes for
// any operation, the steps that wait for each other, the messages that one thread
// has to post, the bytes that a channel's kernel copies, and those that the
// fullest node's cables carry. What a step crosses and a node passes on follows
// from the [Mesh]: between two nodes without a cable others relay, and where
// nothing relays there is no way.
//
// Rules that hold throughout:
//
//   - A rank must come to the same answer as every other rank, or NCCL hangs:
//     nothing enters but the number of nodes, the operation and settings that
//     are the same everywhere. The costs are constants, [Spark].
//   - NCCL asks for every operation, so the answers are computed beforehand, into
//     a [Table] that is looked up without a call of Go.
package tuner
