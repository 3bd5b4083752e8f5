// Package datapath tests what of the data path a simulation cannot show, because its models run in the same threads: that it allocates nothing,
// and that it reads memory once which a device changes meanwhile. It does so over the libibverbs of tests/fakeverbs and the kernel's sockets.
package datapath
