// Package meet brings the processes of a job together that mpirun, torchrun or srun has started, without ssh: all find rank 0
// at MASTER_ADDR, and rank 0 asks one process of each node, as [fleet] does.
//
//	rank 0                            another rank
//	listens              ◄─────────   dials, again and again until somebody is there
//	{"meet", "nonce"}    ─────────►
//	                     ◄─────────   {"rank", "local", "host", "nonce", "proof"}
//	{"ask": proof}       ─────────►   dials once more, for the next question, and
//	                     ◄────────►   serves this one, as `ncclmesh agent` does
//	{"over": true}       ─────────►   ends
//
// The proofs are of NCCL_MESH_KEY, by both sides. Without a key whoever reaches the port is believed to be the rank that it
// says; it is asked about its node, and told nothing else. A rank does what an agent does, except to start processes.
package meet
