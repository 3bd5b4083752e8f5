// This file holds the one unsafe thing of the package: telling C where table and gate lie. They are package variables,
// which never move, and a forked child inherits them like all memory.

package forkfd

import (
	"sync/atomic"
	"unsafe"
)

// Bits is the size of the table: the kernel gives a process no more descriptors, unless its fs.nr_open was raised. Those from
// here on are not closed in a child.
const Bits = 1 << 20

var table [Bits / 64]atomic.Uint64

// gate keeps forks and Do apart.
var gate struct {
	inside  atomic.Int32 // calls of Do
	forking atomic.Int32 // forks that wait or happen; C writes it
}

// Mark notes that fd is open and ours.
func Mark(fd int) {
	if fd >= 0 && fd < Bits {
		table[fd/64].Or(1 << (fd % 64))
	}
}

// Clear notes that fd is about to be closed.
func Clear(fd int) {
	if fd >= 0 && fd < Bits {
		table[fd/64].And(^(uint64(1) << (fd % 64)))
	}
}

// Table returns the address and the number of bits of the table: descriptor fd is bit fd%64 of the 64-bit word fd/64.
func Table() (addr uintptr, bits int) {
	return uintptr(unsafe.Pointer(&table)), Bits
}

// Gate returns the address of two 32-bit numbers: how many calls of Do there are, and how many forks, which the fork handler
// counts.
func Gate() uintptr { return uintptr(unsafe.Pointer(&gate)) }
