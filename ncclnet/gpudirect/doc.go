// Package gpudirect decides whether NCCL is offered GPU memory: whether it may
// register buffers in GPU memory, from which adapters send and into which they
// receive without a copy in host memory (GPUDirect RDMA).
//
// NCCL asks once, before it knows a peer, and fails the communicator if a
// registration is refused later. So the offer is made only if every lane that a
// connection may ever get can use GPU memory, lanes after a failure included.
// [Decide] is a pure function of what was found out.
package gpudirect
