package ncclnet

import "ncclmesh/transport/forkfd"

// ForkTable returns the address of a bit map of the descriptors that a forked child has to close: bit fd%64 of the
// 64-bit word fd/64. A fork sets the second 32-bit number of gate and waits until the first is 0.
func ForkTable() (addr uintptr, bits int, gate uintptr) {
	addr, bits = forkfd.Table()
	return addr, bits, forkfd.Gate()
}
