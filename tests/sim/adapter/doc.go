// Package adapter simulates RDMA adapters and the cables between them, on the bus of a simulation: a driver for package ibv
// whose reliable connections take virtual time, lose packets and break as real ones do.
//
//	Fabric ── Device ── Port ── Link ── Port ── Device
//	              │                       │
//	           Process (ibv.Driver)    Process: contexts, domains, regions, queues
//
// A request is cut into bursts of packets of the path's MTU. A burst occupies the sender's end of the link for as long as the
// link's rate says, arrives a latency later, and is carried out there: keys, bounds and rights are checked, bytes are copied,
// a receive is taken. Acknowledgements, refusals and the data of READs come back the same way and can be lost like
// everything else, also after the data has landed. The requester counts time-outs and repeats from the first packet that was
// not acknowledged; what was a send buffer then is read again.
//
// The model is nasty on purpose. A completion in error holds rubbish where the standard defines nothing. Room in a queue
// returns only when a completion is polled. The number and the keys of an object that is gone are not given out again soon.
// An object whose asynchronous event is being handled is not destroyed before the event is acknowledged.
//
// What a program does at an instant takes effect at the next event of the queue pair's own source, so that the order in
// which goroutines of one instant post does not matter. Objects that several goroutines create at one instant get their
// numbers in the order of the calls.
//
// Not in the model: UD, UC, shared receive queues, atomics, memory windows, partitions, congestion.
package adapter
