// Package nccl runs unmodified NCCL on any machine: no GPU, no CUDA.
//
// Debian's libnccl-dev holds NCCL as an archive of objects. Those of its host half
// - bootstrap, topology search, tuning, the proxy threads, the plugin loader - are
// linked, as they are, to a pretend CUDA (gpu), to kernels that are emulated on
// threads from NCCL's public semantics (kernel) and to a program that plays one rank
// and checks every result (rank). The package is fetched when a test needs it and is
// no part of this project.
//
//	[Fetch]   gets a version of NCCL from the archive
//	[Build]   links the rank program to it
//	[Job]     runs a rank on each node of a fabric
//
// Device memory is memory of the host that the processor cannot touch at its address: a
// load or a store there by NCCL's host half or by the plugin ends the process. The device
// is a GB10, whose memory adapters do not reach, without these variables:
//
//	FAKEGPU_GDR=1      adapters reach it (CUDA's attribute 116)
//	FAKEGPU_DMABUF=1   and by DMA-BUFs too (attribute 124)
//	FAKEGPU_CC=8.0     its compute capability
//	FAKEGPU_BUSID      where it is on the PCI bus
//
// Emulated: ring, tree; Simple and LL; PAT from 2.23 on; all-reduce, all-gather,
// reduce-scatter, broadcast, reduce, send and receive; several communicators. Not
// emulated: LL128, NVLS, CollNet, registered buffers, graphs, symmetric memory; the
// settings of a job see to it that NCCL chooses none of these. What each version makes
// of the plugin: go run ./tests/nccl/cmd/table, after make build fakeverbs; what it
// chooses with the tuner and without: go run ./tests/nccl/cmd/choices. A profiler that
// NCCL loads (profiler) counts the events that the plugin gives it.
package nccl
