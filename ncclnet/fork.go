package ncclnet

import "ncclmesh/transport/forkfd"

// ForkTable returns where the descriptors stand that a forked child has to
// close: one bit each, bit fd%64 of the 64-bit word fd/64. A fork announces
// itself in the second 32-bit number of gate and waits until the first is 0.
func ForkTable() (addr uintptr, bits int, gate uintptr) {
	addr, bits = forkfd.Table()
	return addr, bits, forkfd.Gate()
}
