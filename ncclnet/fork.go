package ncclnet

import "ncclmesh/transport/forkfd"

// ForkTable returns where the descriptors stand that a forked child has to
// close: one bit each, bit fd%64 of the 64-bit word fd/64.
func ForkTable() (addr uintptr, bits int) { return forkfd.Table() }
