// Package copier copies memory within this process by its adapters, and changes words of it. It is for GPU memory, which the
// processor cannot reach.
//
//	Copier   the RDMA ports of the process, each with a queue pair to itself
//	Region   memory that all of them have registered; connections that have registered it too share the registration
//	Task     a copy, a change of a word, or a load of one
//
// A copy is a READ that an adapter makes of this process's own memory: see [verbs.Loopback]. A change reads the word, and writes
// what it becomes. A task is done when the GPU sees it: the last READ of a task comes behind its writes.
//
// Tasks are carried out in their order, one READ at a time. So changes of one word do not lose each other, whoever asked for
// them: no other agent of the process may change the word meanwhile. If an adapter cannot read its own memory at present,
// because its port has no link, the next one goes on. If none can, the tasks wait for one, as connections wait for a lane.
//
// Nothing moves between calls of [Copier.Poll]. It does not wait and allocates nothing, nor do Copy and Change.
package copier
